"""Words that are memra's own commands, which no plugin may take; a test holds them to the command line."""

OWN_COMMANDS = ("run", "bench", "doctor", "models", "plugins", "feeds", "keys")
