"""An experiment from queue to end: workers, messages, status, evaluation and shutdown."""
