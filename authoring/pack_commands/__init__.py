"""The commands of `toolmesh pack`, one file each."""
