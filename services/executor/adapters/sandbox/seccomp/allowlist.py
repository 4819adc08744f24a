"""The system calls that a sandboxed process may make, by name. All others are refused.

An allow list also refuses the calls that future kernels add, until they are reviewed.
"""

from __future__ import annotations

ALLOWED = frozenset(
    """
    access alarm arch_prctl brk cachestat capget capset chdir chmod chown chown32 clock_getres clock_gettime
    clock_nanosleep close close_range copy_file_range creat dup dup2 dup3 epoll_create epoll_create1 epoll_ctl
    epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2 execve execveat exit
    exit_group faccessat faccessat2 fadvise64 fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl
    fdatasync fgetxattr flistxattr flock fork fremovexattr fsetxattr fstat fstatfs fsync ftruncate futex
    futex_requeue futex_wait futex_waitv futex_wake futimesat get_robust_list get_thread_area getcpu getcwd
    getdents getdents64 getegid geteuid getgid getgroups getitimer getpgid getpgrp getpid getppid getpriority
    getrandom getresgid getresuid getrlimit getrusage getsid gettid gettimeofday getuid getxattr getxattrat
    inotify_add_watch inotify_init inotify_init1 inotify_rm_watch ioprio_get kill landlock_add_rule
    landlock_create_ruleset landlock_restrict_self lchown lgetxattr link linkat listxattr listxattrat llistxattr
    lremovexattr lseek lsetxattr lstat madvise map_shadow_stack membarrier memfd_create mincore mkdir mkdirat
    mknod mknodat mlock mlock2 mlockall mmap mprotect mremap mseal msync munlock munlockall munmap nanosleep
    newfstatat open openat openat2 pause pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free
    pkey_mprotect poll ppoll prctl pread64 preadv preadv2 prlimit64 pselect6 pwrite64 pwritev pwritev2 read
    readahead readlink readlinkat readv remap_file_pages removexattr removexattrat rename renameat renameat2
    restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn
    rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min
    sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval sched_setaffinity
    sched_setattr sched_setparam sched_setscheduler sched_yield select sendfile set_robust_list set_thread_area
    set_tid_address setfsgid setfsuid setgid setgroups setitimer setpgid setpriority setregid setresgid
    setresuid setreuid setrlimit setsid setuid setxattr setxattrat sigaltstack signalfd signalfd4 splice stat
    statfs statx symlink symlinkat sync sync_file_range syncfs sysinfo tee tgkill time timer_create timer_delete
    timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime times tkill
    truncate umask uname unlink unlinkat uretprobe utime utimensat utimes vfork vmsplice wait4 waitid write
    writev semctl semget semop semtimedop shmat shmctl shmdt shmget msgctl msgget msgrcv msgsnd accept accept4
    bind connect getpeername getsockname getsockopt listen recvfrom recvmmsg recvmsg sendmmsg sendmsg sendto
    setsockopt shutdown
    """.split()  # noqa: SIM905
)
"""Files, memory, time, threads, signals and unix sockets, all within the sandbox's own namespaces."""

KILL_CALLS = frozenset(
    """
    ptrace process_vm_readv process_vm_writev pidfd_getfd
    mount umount2 pivot_root chroot fsopen fsconfig fsmount fspick move_mount open_tree open_tree_attr mount_setattr
    unshare setns
    bpf perf_event_open userfaultfd keyctl add_key request_key open_by_handle_at
    init_module finit_module delete_module kexec_load kexec_file_load reboot swapon swapoff
    iopl ioperm acct
    """.split()  # noqa: SIM905
)
"""Calls that no legitimate tool makes. They kill the process, so that the attempt shows in the exit report."""

UNACCOUNTED_MEMORY_CALLS = frozenset({"memfd_create", "shmget", "msgget"})
"""Calls that create memory outside every address space. Only a cgroup counts it; without one they are refused."""

ENOSYS_CALLS = frozenset({"clone3"})
"""Calls that fail with ENOSYS. A filter cannot read the flags of clone3, which are in memory; libraries then fall back
to clone, whose flags are in a register."""

CLONE_NAMESPACE_FLAGS = 0x7E020000
"""Flags of clone that create namespaces: mount, cgroup, uts, ipc, user, pid and network."""

AF_UNIX, AF_INET, AF_INET6 = 1, 2, 10
SOCK_STREAM, SOCK_TYPE_MASK = 1, 0xF
IPPROTO_TCP = 6
TERMINAL_INPUT_IOCTLS = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX, which inject input into a terminal."""
PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)
"""PER_LINUX, PER_LINUX32, UNAME26 and the query; none of them disables address space randomization."""
