"""What a run leaves: result.json, progress.csv, params.json, curve.png, Lightning's loggers, the last table."""
