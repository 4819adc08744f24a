"""Tests of what is deployed: images and manifests."""
