"""What the server says of itself: every public route, what it takes and what it answers, as one OpenAPI document."""
