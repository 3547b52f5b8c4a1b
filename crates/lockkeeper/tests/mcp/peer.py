"""Uses every tool of `lockkeeper mcp` through the official SDK: peer.py PROGRAM FOLDER."""

import asyncio
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

PROGRAM, FOLDER = sys.argv[1:]
SERVER = StdioServerParameters(command=PROGRAM, args=["mcp"], cwd=FOLDER)


async def call(session, tool, **arguments):
    """The SDK raises if the result does not fit the schema of the tool."""
    result = await session.call_tool(tool, arguments)
    is_error = getattr(result, "is_error", None) or getattr(result, "isError", None)
    assert not is_error, (tool, result)
    value = getattr(result, "structured_content", None) or getattr(result, "structuredContent", None)
    assert value is not None, (tool, result)
    return value


async def use(one, two):
    for session in (one, two):
        await session.initialize()
    listed = await one.list_tools()
    used = {"board", "check", "claim", "commit", "hand_over", "note", "release", "wait", "why"}
    assert {tool.name for tool in listed.tools} == used, listed

    assert (await call(one, "note", text="split the parser"))["done"]
    assert (await call(one, "claim", paths=["src/a.rs"]))["granted"]
    assert (await call(two, "claim", paths=["src/b.rs"]))["granted"]
    denied = await call(two, "claim", paths=["src/a.rs"])
    assert not denied["granted"] and denied["conflicts"][0]["note"] == '"split the parser"', denied
    assert not (await call(two, "check", paths=["src/a.rs"]))["free"]
    waits = await call(two, "wait", paths=["src/a.rs"], seconds=0)
    assert not waits["granted"] and waits["position"] == 1, waits
    board = await call(one, "board")
    assert len(board["agents"]) == 2 and len(board["waiting"]) == 1, board
    assert (await call(one, "why", target="src/a.rs"))["held"]
    other = next(agent["owner"] for agent in board["agents"] if agent["claims"] == ["src/b.rs"])
    assert (await call(one, "hand_over", paths=["src/a.rs"], to=other))["done"]
    assert (await call(two, "release", all=True))["released"] == ["src/a.rs", "src/b.rs"]
    assert (await call(one, "wait", paths=["src/a.rs"]))["granted"]
    made = await call(one, "commit", message="add a")
    assert made["done"] and made["paths"] == ["src/a.rs"], made
    assert not (await call(one, "commit", message="again"))["done"]

    prompts = await one.list_prompts()
    assert [prompt.name for prompt in prompts.prompts] == ["coordinate"], prompts
    resources = await one.list_resources()
    assert [str(resource.uri) for resource in resources.resources] == ["lockkeeper://board"], resources


async def main():
    async with stdio_client(SERVER) as first, stdio_client(SERVER) as second:
        async with ClientSession(*first) as one, ClientSession(*second) as two:
            await use(one, two)
    print("every tool was used")


asyncio.run(main())
