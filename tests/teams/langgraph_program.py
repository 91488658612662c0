"""A LangGraph program as somebody would have it: a router picks a specialist, who may call a tool. Nothing of ours."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages


@tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


model = ChatOpenAI(model="gpt-4o-mini", temperature=0)
solver = model.bind_tools([add])


class State(TypedDict):
    messages: Annotated[list[Any], add_messages]
    route: str


def route(state: State) -> dict[str, str]:
    said = model.invoke([SystemMessage("You are the router. Reply with sum or echo."), state["messages"][0]])
    return {"route": "solve" if "sum" in str(said.content) else "echo"}


def solve(state: State) -> dict[str, Any]:
    talk = [SystemMessage("You are the solver."), *state["messages"]]
    said = solver.invoke(talk)
    results = [ToolMessage(str(add.invoke(call["args"])), tool_call_id=call["id"]) for call in said.tool_calls]
    if not results:
        return {"messages": [said]}
    return {"messages": [said, *results, solver.invoke([*talk, said, *results])]}


def echo(state: State) -> dict[str, Any]:
    return {"messages": [HumanMessage(state["messages"][0].content)]}


builder = StateGraph(State)
for node in (route, solve, echo):
    builder.add_node(node.__name__, node)
builder.add_edge(START, "route")
builder.add_conditional_edges("route", lambda state: state["route"], ["solve", "echo"])
builder.add_edge("solve", END)
builder.add_edge("echo", END)
graph = builder.compile()
