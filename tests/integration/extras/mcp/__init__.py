"""The MCP server as a real client meets it: over stdio, before a real gateway and daemon."""
