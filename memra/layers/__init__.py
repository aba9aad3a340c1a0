"""The operators that model programs are made of, with their shapes stated; nothing is computed here."""
