"""Builds images: `python -m deploy.images [NAME ...]`; `--pin` renews the locks of Debian packages."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from deploy.images import debian
from deploy.images.build import Builder
from deploy.images.catalogue import DEBIAN, IMAGES
from deploy.images.platform import PLATFORMS

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Build the named images, or all, into build/images."""
    parser = argparse.ArgumentParser(prog="python -m deploy.images", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(image.name for image in IMAGES))
    parser.add_argument("--platform", choices=PLATFORMS, default="amd64", help="default: amd64")
    parser.add_argument("--output", type=Path, help="default: build/images, and build/images/arm64 for arm64")
    parser.add_argument("--pin", action="store_true", help="pin the Debian packages that the mirror offers")
    options = parser.parse_args()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "toolmesh" / "images"
    if options.pin:
        for platform in PLATFORMS.values():
            debian.lock_of(platform).write_text(debian.pin(DEBIAN, platform, cache))
        return 0
    if unknown := set(options.names) - {image.name for image in IMAGES}:
        parser.error(f"no image is named {', '.join(sorted(unknown))}")
    platform, built = PLATFORMS[options.platform], ROOT / "build" / "images"
    output = options.output or (built if platform.name == "amd64" else built / platform.name)
    output.mkdir(parents=True, exist_ok=True)
    builder = Builder(ROOT, output / "work", cache, platform)
    for image in IMAGES:
        if not options.names or image.name in options.names:
            start, target = time.monotonic(), output / f"{image.name}.tar"
            digest = builder.build(image, target)
            size = target.stat().st_size / 1e6
            sys.stdout.write(f"  {image.name:9} {size:6.0f} MB  {digest}  {time.monotonic() - start:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
