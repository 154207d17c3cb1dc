"""The control plane: registry, scheduler, ledger, replay index, one commander per experiment."""
