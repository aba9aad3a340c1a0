"""The front door: routes, wire schemas, SSE framing and the server itself. It knows the wire, never the engine."""
