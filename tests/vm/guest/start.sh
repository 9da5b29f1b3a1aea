#!/bin/busybox sh
# Process 1 of the guest: runs what the host has put into the share, then tells QEMU how it ended (QEMU's own status
# is then twice that, plus one). With before.sh in the share, that is run first, and systemd is process 1 from then on;
# it runs this again, as "start.sh checks".
cd /run/vm
if [ -e before.sh ] && [ "$1" != checks ]; then
	if (. ./before.sh); then
		exec /lib/systemd/systemd
	fi
	echo "GUEST did not come to boot systemd"
	code=99
else
	. ./command.sh
	code=$?
fi
dmesg >dmesg.txt
echo "GUEST ended $code"
sync
[ $code -le 100 ] || code=100
printf "\\x$(printf %x $((code + 16)))" | dd of=/dev/port bs=1 seek=244 2>/dev/null
poweroff -f
