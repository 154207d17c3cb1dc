"""Metrics emitted once and fanned out to views: text logs, tables, TensorBoard, progress files, console."""
