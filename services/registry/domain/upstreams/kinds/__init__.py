"""What each kind of upstream offers, as manifests."""
