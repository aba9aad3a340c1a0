"""What the front of the server costs: processor time of a request and of a streamed token, without any model's.

Refuses to know engines. `memra.cli_bench.command` starts it.
"""
