"""Classes of service: what each lane may do, and what was counted of it. Pure, and usable from any process."""
