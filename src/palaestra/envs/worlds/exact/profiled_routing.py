"""Vehicle routing with preferences of vehicles for clients: symmetric copies, and the best routes by enumeration.

The objective is that of CAMP (arXiv 2501.02977): -w₁ · total length + w₂ · sum of the preferences of those served.
"""

from __future__ import annotations

import numpy as np


def symmetries(xy: np.ndarray, centre: float = 0.5) -> np.ndarray:
    """The eight symmetric copies of points in a square, float64[8, points, 2]; the first is `xy` itself.

    Args:
        xy: float64[points, 2].
        centre: both coordinates of the square's middle.

    >>> symmetries(np.array([[0.0, 0.25]]))[:, 0].tolist()[:4]
    [[0.0, 0.25], [1.0, 0.25], [0.0, 0.75], [1.0, 0.75]]
    """
    x, y = (np.asarray(xy, float) - centre).T
    signs = [(1, 1), (-1, 1), (1, -1), (-1, -1)]
    copies = [np.stack([a * p, b * q], axis=1) for p, q in ((x, y), (y, x)) for a, b in signs]
    return np.array(copies) + centre


def best_routes(
    xy: np.ndarray, demands: np.ndarray, profile: np.ndarray, capacity: float, weights: tuple[float, float] = (0.8, 0.2)
) -> float:
    """Largest preference (matrix `profile`) less distance (points `xy`, depot first) of routes that meet `demands`.

    Exact, for small cases only.

    For at most about ten clients.

    Every vehicle starts and ends at the depot and may come back to it in between for a full load. Held-Karp tours of
    all sets of clients, the cheapest split of each set into loads, and the best split of the clients among vehicles.

    Args:
        xy: float64[1 + clients, 2], the depot first.
        demands: float64[clients].
        profile: float64[vehicles, clients], NaN where a vehicle must not serve a client.
        capacity: of each vehicle.
        weights: w₁ and w₂.

    Returns:
        The objective; -inf if there are no such routes.
    """
    xy, demands, profile = (np.asarray(each, float) for each in (xy, demands, profile))
    clients, every = len(demands), 1 << len(demands)
    distance = np.linalg.norm(xy[:, None] - xy[None], axis=-1)
    members = [[client for client in range(clients) if chosen >> client & 1] for chosen in range(every)]
    path = np.full((every, clients), np.inf)
    for chosen in range(1, every):
        for last in members[chosen]:
            before = chosen ^ (1 << last)
            reached = path[before] + distance[1:, last + 1]
            path[chosen, last] = reached.min() if before else distance[0, last + 1]
    load = np.array([sum(demands[client] for client in each) for each in members])
    tour = np.where(load <= capacity, (path + distance[1:, 0]).min(axis=1), np.inf)
    tour[0] = 0.0
    length = tour.copy()
    for chosen in range(1, every):
        part = (chosen - 1) & chosen
        while part:
            length[chosen] = min(length[chosen], tour[part] + length[chosen ^ part])
            part = (part - 1) & chosen
    best = np.full(every, -np.inf)
    best[0] = 0.0
    for liking in profile:
        liked = np.array([sum(liking[client] for client in each) for each in members])
        own = np.where(np.isnan(liked), -np.inf, -weights[0] * length + weights[1] * liked)
        after = best.copy()
        for chosen in range(1, every):
            part = chosen
            while part:
                after[chosen] = max(after[chosen], own[part] + best[chosen ^ part])
                part = (part - 1) & chosen
        best = after
    return float(best[-1])
