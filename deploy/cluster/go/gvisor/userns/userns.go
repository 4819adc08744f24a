// Package userns takes the place of the package of this name, which tells whether a process may change the machine.
//
// The shim gives itself a lower score for the kernel's choice of what dies first, and ends where it may not. It forgives
// that in a user namespace; a root without CAP_SYS_RESOURCE may not do it either.
package userns

import (
	"os"
	"strconv"
	"strings"
	"sync"
)

const capSysResource = 24

// RunningInUserNS reports whether this process is in a user namespace, or lacks CAP_SYS_RESOURCE.
var RunningInUserNS = sync.OnceValue(func() bool {
	return !mapsAllUsers() || !mayRaiseLimits()
})

func mapsAllUsers() bool {
	content, err := os.ReadFile("/proc/self/uid_map")
	return err != nil || strings.Join(strings.Fields(string(content)), " ") == "0 0 4294967295"
}

func mayRaiseLimits() bool {
	content, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return true
	}
	for _, line := range strings.Split(string(content), "\n") {
		if value, found := strings.CutPrefix(line, "CapEff:"); found {
			bits, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
			return err != nil || bits&(1<<capSysResource) != 0
		}
	}
	return true
}
