/* SPDX-License-Identifier: MIT */
/* What a namespace is kept in: files of any length, locks, refusals in words, sparse memory. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "emu_host.h"
#include "lacks.h"

#define MEDIA(sc) NVME_STATUS(NVME_SCT_MEDIA, sc)

static char dir[256];
static char path[sizeof(dir) + 8];

static int try_new(struct emu_params *p, char *err)
{
	struct emu_ctrl *e = NULL;
	int rc = emu_new(p, &e, err, 512);

	if (!rc)
		emu_free(e);
	return rc;
}

static void make_file(const char *name, const void *bytes, size_t n)
{
	int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0 || write(fd, bytes, n) != (ssize_t)n)
		must(false, "make %s", name);
	close(fd);
}

static void refusals(void)
{
	struct emu_params p = host_params();
	char err[512] = "", sub[sizeof(dir) + 16];
	int fd;

	p.path = path;
	is(try_new(&p, err), -ENOENT, "a missing file: %s", err);
	ok(strstr(err, path) && strstr(err, "size="), "names the file and the remedy");
	p.path = dir;
	is(try_new(&p, err), -EISDIR, "a directory: %s", err);
	snprintf(sub, sizeof(sub), "%s/no/file", dir);
	p.path = sub;
	p.create = true;
	is(try_new(&p, err), -ENOENT, "a missing directory: %s", err);
	p.path = path;
	p.ns[0].nbytes = 1000;
	is(try_new(&p, err), -EINVAL, "a size that is no multiple: %s", err);
	ok(strstr(err, "1000") && strstr(err, "512"), "names the size and the block");
	p.ns[0].lba_bytes = 513;
	is(try_new(&p, err), -EINVAL, "an odd block size: %s", err);
	p = host_params();
	p.queues = 1000;
	is(try_new(&p, err), -EINVAL, "too many queues: %s", err);
	p = host_params();
	p.ns[0].nbytes = 0;
	is(try_new(&p, err), -EINVAL, "memory without a size: %s", err);

	p = host_params();
	p.path = path;
	make_file(path, "", 0);
	p.ns[0].nbytes = 0;
	is(try_new(&p, err), -EINVAL, "an empty file: %s", err);
	make_file(path, "12345", 5);
	p.ns[0].nbytes = 1 << 20;
	is(try_new(&p, err), -EINVAL, "a file shorter than the size: %s", err);
	p.ns[0].nbytes = 0;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	flock(fd, LOCK_SH);
	is(try_new(&p, err), -EBUSY, "a locked file: %s", err);
	ok(strstr(err, "this process"), "names the holder");
	p.readonly = true;
	is(try_new(&p, err), 0, "readers share");
	close(fd);
	if (geteuid()) {
		p.readonly = false;
		chmod(path, 0444);
		is(try_new(&p, err), -EACCES, "no permission: %s", err);
		chmod(path, 0644);
	}
	unlink(path);
}

static void other_process_holds(void)
{
	struct emu_params p = host_params();
	char err[512] = "", who[32];
	int pipes[2][2], status;
	char byte = 0;
	pid_t pid;

	make_file(path, "12345", 5);
	must(!pipe(pipes[0]) && !pipe(pipes[1]), "pipes");
	pid = fork();
	if (!pid) {
		int fd = open(path, O_RDWR);

		flock(fd, LOCK_EX);
		if (write(pipes[0][1], "x", 1) != 1 || read(pipes[1][0], &byte, 1) != 1)
			_exit(1);
		_exit(0);
	}
	must(read(pipes[0][0], &byte, 1) == 1, "the child has the lock");
	p.path = path;
	p.ns[0].nbytes = 0;
	is(try_new(&p, err), -EBUSY, "%s", err);
	snprintf(who, sizeof(who), "process %d (", (int)pid);
	ok(strstr(err, who), "names process and command");
	must(write(pipes[1][1], "x", 1) == 1, "let it go");
	waitpid(pid, &status, 0);
	is(try_new(&p, err), 0, "free again");
	unlink(path);
}

static void tails(void)
{
	struct emu_params p = host_params();
	struct emu_state state;
	struct nvme_sqe s;
	struct stat st;
	struct host h;
	struct dma d;
	struct hq q;
	uint8_t bytes[5000];

	fill_pattern(bytes, sizeof(bytes), 5);
	make_file(path, bytes, sizeof(bytes));
	p.path = path;
	p.ns[0].nbytes = 0;
	host_open(&h, &p);
	host_queue(&h, &q, 1, 8);
	emu_get_state(h.e, &state);
	is(state.backing_bytes, 5000, "backing length");
	is(state.backing_tail, 5000 % 512, "backing tail");
	d = dma_new(&h, 2 * PAGE, DMA_RW);
	memset(d.p, 0xee, 2 * PAGE);
	s = host_rw(NVME_IO_READ, 0, 10);
	host_prp(&s, &d, 0, 5120, NULL);
	is(host_cmd(&h, &q, s, NULL), 0, "read all ten blocks");
	ok(!memcmp(d.p, bytes, 5000), "the file's bytes");
	ok(!d.p[5000] && !d.p[5119] && d.p[5120] == 0xee, "then zeros");
	s = host_rw(NVME_IO_READ, 10, 1);
	is(host_cmd(&h, &q, s, NULL), NVME_SC_LBA_RANGE, "no eleventh");
	s = host_rw(NVME_IO_WRITE, 8, 2);
	host_prp(&s, &d, 0, 1024, NULL);
	is(host_cmd(&h, &q, s, NULL), MEDIA(NVME_SC_WRITE_FAULT), "a write over the partial block");
	s = host_rw(NVME_IO_WRITE_ZEROES, 9, 1);
	is(host_cmd(&h, &q, s, NULL), MEDIA(NVME_SC_WRITE_FAULT), "zeroes over the partial block");
	s = host_rw(NVME_IO_WRITE, 8, 1);
	host_prp(&s, &d, 0, 512, NULL);
	s.cdw12 |= le32_put(NVME_RW_FUA);
	if (lacks_rwf())
		skip("no pwritev2 here");
	else
		is(host_cmd(&h, &q, s, NULL), 0, "a write before it");
	stat(path, &st);
	is(st.st_size, 5000, "the file is as long as it was");
	hq_done(&h, &q);
	dma_free(&h, &d);
	host_close(&h);

	p.readonly = true;
	host_open(&h, &p);
	host_queue(&h, &q, 1, 8);
	d = dma_new(&h, 2 * PAGE, DMA_RW);
	s = host_rw(NVME_IO_WRITE, 0, 1);
	host_prp(&s, &d, 0, 512, NULL);
	is(host_cmd(&h, &q, s, NULL), NVME_SC_NS_WRITE_PROTECTED, "read-only: write");
	s = host_rw(NVME_IO_WRITE_ZEROES, 0, 1);
	is(host_cmd(&h, &q, s, NULL), NVME_SC_NS_WRITE_PROTECTED, "read-only: write zeroes");
	s = host_rw(NVME_IO_READ, 0, 1);
	host_prp(&s, &d, 0, 512, NULL);
	is(host_cmd(&h, &q, s, NULL), 0, "read-only: read");
	hq_done(&h, &q);
	dma_free(&h, &d);
	host_close(&h);
	unlink(path);
}

/* Far offsets of a sparse namespace, in memory and in a file. */
static void far_apart(const char *file, uint64_t nbytes)
{
	const uint64_t at[] = { 0, 1ull << 31, 1ull << 32, 1ull << 41 };
	struct emu_params p = host_params();
	struct nvme_sqe s;
	struct host h;
	struct dma d;
	struct hq q;

	p.path = file;
	p.create = true;
	p.ns[0].nbytes = nbytes;
	p.ns[0].lba_bytes = 4096;
	host_open(&h, &p);
	host_queue(&h, &q, 1, 8);
	d = dma_new(&h, 2 * PAGE, DMA_RW);
	for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
		for (int64_t off = -4096; off <= 4096; off += 4096) {
			uint64_t slba = (at[i] + (uint64_t)off) / 4096;

			if (!at[i] && off < 0)
				continue;
			fill_pattern(d.p, PAGE, (uint32_t)(slba ^ slba >> 20));
			s = host_rw(NVME_IO_WRITE, slba, 1);
			host_prp(&s, &d, 0, PAGE, NULL);
			is(host_cmd(&h, &q, s, NULL), 0, "write block %llu", (unsigned long long)slba);
		}
	}
	for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
		for (int64_t off = -8192; off <= 8192; off += 4096) {
			uint64_t slba = (at[i] + (uint64_t)off) / 4096;

			if (!at[i] && off < 0)
				continue;
			s = host_rw(NVME_IO_READ, slba, 1);
			host_prp(&s, &d, 0, PAGE, NULL);
			if (off < -4096 || off > 4096)
				memset(d.p + PAGE, 0, PAGE);
			else
				fill_pattern(d.p + PAGE, PAGE, (uint32_t)(slba ^ slba >> 20));
			host_cmd(&h, &q, s, NULL);
			ok(!memcmp(d.p, d.p + PAGE, PAGE), "read block %llu", (unsigned long long)slba);
		}
	}
	hq_done(&h, &q);
	dma_free(&h, &d);
	host_close(&h);
	if (file)
		unlink(file);
}

/* Blocks that are not in the page cache are not a stepper's: whoever serves them, the bytes are right. */
static void cold(void)
{
	struct emu_params p = host_params();
	struct emu_counters c;
	struct nvme_sqe s;
	struct host h;
	struct dma d;
	struct hq q;
	uint8_t *bytes = malloc(1 << 20);
	uint32_t wrong = 0;
	int fd;

	fill_pattern(bytes, 1 << 20, 77);
	make_file(path, bytes, 1 << 20);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	p.path = path;
	p.ns[0].nbytes = 0;
	host_open(&h, &p);
	host_queue(&h, &q, 1, 8);
	d = dma_new(&h, PAGE, DMA_RW);
	for (uint32_t i = 0; i < 64; i++) {
		if (i % 2 && !fsync(fd))
			posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
		s = host_rw(NVME_IO_READ, i * 8, 8);
		host_prp(&s, &d, 0, PAGE, NULL);
		hq_put(&q, &s);
		__atomic_store_n(host_db(&h, 1, false), q.sq_tail, __ATOMIC_RELEASE);
		emu_step(h.e, 1, 1);
		wrong += hq_wait(&h, &q, NULL) || memcmp(d.p, bytes + i * PAGE, PAGE);
	}
	emu_get_counters(h.e, &c);
	is(wrong, 0, "cold and warm blocks are read (%llu of 64 stepped)", (unsigned long long)c.stepped);
	hq_done(&h, &q);
	dma_free(&h, &d);
	host_close(&h);
	close(fd);
	free(bytes);
	unlink(path);
}

static void forked(void)
{
	struct emu_params p = host_params();
	struct host h;
	int status = 1;
	char err[512];
	pid_t pid;

	p.path = path;
	p.create = true;
	host_open(&h, &p);
	pid = fork();
	if (!pid) {
		emu_free(h.e);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	is(status, 0, "a forked child can let go of its copy");
	is(try_new(&p, err), -EBUSY, "the parent keeps the lock");
	is(host_admin(&h, (struct nvme_sqe){ .opcode = NVME_ADM_KEEP_ALIVE }, NULL), 0, "and works on");
	host_close(&h);
	unlink(path);
}

int main(void)
{
	host_temp(dir, sizeof(dir), "file");
	must(mkdtemp(dir) != NULL, "a directory");
	snprintf(path, sizeof(path), "%s/ns", dir);
	refusals();
	other_process_holds();
	tails();
	far_apart(NULL, 4ull << 40);
	far_apart(path, 4ull << 40);
	cold();
	forked();
	rmdir(dir);
	return done_testing();
}
