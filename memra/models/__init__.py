"""One architecture family per file: metadata in, a program out. Nothing is computed here."""
