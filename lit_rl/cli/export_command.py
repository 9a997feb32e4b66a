"""``lit-rl export``: a trained policy for use without Python."""

from __future__ import annotations

from lit_rl.cli.command import Command
from lit_rl.cli.settings import ExportSettings


def main(argv: list[str]) -> int:
    """Export, and say where the file is."""
    settings = Command("export", ExportSettings, ("checkpoint", "CHECKPOINT")).parse(argv)
    if settings is None:
        return 0
    if settings.custom_model is not None:
        from lit_rl.algorithms import import_object

        import_object(settings.custom_model, "--custom_model")
    from lit_rl.export import export_onnx

    print(export_onnx(settings.checkpoint, settings.out))
    return 0
