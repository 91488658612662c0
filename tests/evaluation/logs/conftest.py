from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
if str(HERE) not in sys.path:
    sys.path.append(str(HERE))  # samples, real_tools, fuzz


@pytest.fixture(scope="session")
def sample_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One small file of every format that no tool here can write by itself."""
    from samples import write_all

    return write_all(tmp_path_factory.mktemp("samples"))
