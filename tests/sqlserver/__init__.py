"""What only the real SQL Server can show: lock hints, isolation levels, attentions, versions and plans."""
