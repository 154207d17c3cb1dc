"""What every worker shares: its link to the coordinator, its beats, its shutdown."""
