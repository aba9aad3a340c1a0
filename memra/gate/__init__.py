"""Who may come in, and how much: slots, lanes, budgets of tokens. Pure policy: nothing here waits."""
