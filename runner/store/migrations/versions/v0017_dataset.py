"""The views of the data export are split, so that an export reads what cases of runs say for new runs only."""

revision = "0017_dataset"
down_revision = "0016_gateway"


def upgrade() -> None:
    """Apply this version: all of it is in the schema files."""
