"""How model families write tool calls: one small file per dialect behind one contract. Text only, never a token."""
