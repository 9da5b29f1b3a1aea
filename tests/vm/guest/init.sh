#!/bin/busybox sh
# The guest's first program, from the initramfs: the host's file system, copy-on-write, as root; then process 1.
bb=/bin/busybox
at() { echo "GUEST $1 at $($bb cut -d' ' -f1 $2/proc/uptime) s"; }
fail() { echo "GUEST cannot $*"; $bb sync; $bb poweroff -f; }

$bb mount -t proc proc /proc && $bb mount -t sysfs sys /sys && $bb mount -t devtmpfs dev /dev || fail "mount /proc, /sys, /dev"
at "initramfs"
option() { $bb sed -n "s/.*\bvm\.$1=\([^ ]*\).*/\1/p" /proc/cmdline; }
libraries=$(option modules) start=$(option start)
echo 30 >/proc/sys/kernel/hung_task_timeout_secs
echo 60 >/proc/sys/kernel/watchdog_thresh
for module in /modules/*.ko; do $bb insmod "$module" || fail "load $module"; done

nine=trans=virtio,version=9p2000.L,msize=524288,access=any
$bb mount -t 9p -o ro,$nine,cache=loose host /ro || fail "mount the host's file system"
$bb mount -t tmpfs tmpfs /rw && $bb mkdir /rw/upper /rw/work
$bb mount -t overlay -o lowerdir=/ro,upperdir=/rw/upper,workdir=/rw/work overlay /new || fail "lay a copy-on-write root over it"
for made in proc sys dev; do $bb mount --move /$made /new/$made; done

# /tmp stays the host's, copy-on-write: a checkout or an interpreter may lie there.
$bb mount -t tmpfs tmpfs /new/run && $bb mkdir -p /new/run/vm /new/run/tmp /new/dev/shm /new/dev/pts /new/lib/modules
$bb mount -t tmpfs tmpfs /new/dev/shm
$bb mount -t devpts devpts /new/dev/pts
$bb mount -t debugfs debugfs /new/sys/kernel/debug
$bb ln -s /proc/self/fd /new/dev/fd
# The results are the host's at once, also when the guest ends the next moment.
$bb mount -t 9p -o $nine,cache=none share /new/run/vm || fail "mount the share for results"
$bb mount --bind "/new$libraries" /new/lib/modules || fail "find the kernel's modules"
$bb ip link set lo up
at "root" /new
exec $bb switch_root /new /bin/busybox sh "$start"
