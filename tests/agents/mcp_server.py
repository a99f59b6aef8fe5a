"""A small MCP server over standard input and output, for tests."""

from __future__ import annotations

import os
import sys

from mcp.server.mcpserver import Image, MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("shop")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def price(what: str) -> str:
    """The price of something."""
    return f"{what} costs {len(what)} in {os.environ.get('CURRENCY', 'coins')}"


@server.tool()
def buy(what: str) -> str:
    """Buy something."""
    if what == "moon":
        raise ValueError("the moon is not for sale")
    return f"bought {what}"


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def picture() -> Image:
    """A picture of the shop."""
    return Image(data=b"no picture", format="png")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def close() -> str:
    """Close the shop, for good."""
    os._exit(1)


if __name__ == "__main__":
    if "--broken" in sys.argv:
        sys.exit("no shop today")
    print("hello on stderr", file=sys.stderr)
    server.run("stdio")
