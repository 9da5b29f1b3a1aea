/* SPDX-License-Identifier: MIT */
/*
 * The kernel helper's transport, over a stand-in for the kernel: a sparse file takes the mappings (registers, words,
 * queue memory) and ioctl() is answered here. What the real one does is tested in a guest.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kmod/uapi/ugds_ioctl.h"
#include "lacks.h"
#include "tapf.h"
#include "transport/kmod.h"

#define PAGE 4096ull

static struct {
	struct ugds_drv_info info;
	uint32_t state, pieces, traits, resets[8], nr_resets, nr_binds, nr_unbinds;
	uint32_t last_kind, last_flags, last_word, last_how_fails;
	int map_fails, no_write, extents_fail, event_fd;
	uint64_t token, unmapped, last_vaddr, last_offset, queue_offset;
} kernel;

/* Bus addresses that say which page they stand for; every second one follows on. */
static uint64_t iova_of(uint32_t i) { return (0x100ull + 3 * i) * PAGE; }

static int map(struct ugds_drv_map *m)
{
	struct ugds_drv_extent *e = (void *)(uintptr_t)m->extents;

	kernel.last_kind = m->kind;
	kernel.last_flags = m->flags;
	kernel.last_vaddr = m->vaddr;
	kernel.last_offset = m->offset;
	if (kernel.map_fails)
		return kernel.map_fails;
	if (kernel.no_write && m->flags & UGDS_DRV_MAP_WRITE)
		return EFAULT;
	if (m->flags & UGDS_DRV_MAP_CONTIG && kernel.pieces > 1)
		return ENOTUNIQ;
	for (uint32_t i = 0; i < m->nr_extents && i < kernel.pieces; i++)
		e[i] = (struct ugds_drv_extent){ iova_of(i), PAGE };
	m->nr_extents = kernel.pieces;
	m->ret_token = ++kernel.token;
	m->ret_first_off = (uint32_t)(m->vaddr + m->offset) & (PAGE - 1);
	m->ret_page_size = PAGE;
	m->ret_flags = kernel.traits;
	return 0;
}

/* Never more than seven at once: the caller has to come again. */
static int extents(struct ugds_drv_extents *x)
{
	struct ugds_drv_extent *e = (void *)(uintptr_t)x->extents;
	uint32_t n = 0;

	if (kernel.extents_fail)
		return kernel.extents_fail;
	for (; n < 7 && n < x->nr_extents && x->first + n < kernel.pieces; n++)
		e[n] = (struct ugds_drv_extent){ iova_of(x->first + n), PAGE };
	x->nr_extents = n;
	return 0;
}

static int state(struct ugds_drv_state *s)
{
	if (s->event_fd >= 0)
		kernel.event_fd = s->event_fd;
	s->ret_state = kernel.state;
	return 0;
}

static int answer(unsigned long cmd, void *arg)
{
	switch (cmd) {
	case UGDS_DRV_INFO:
		*(struct ugds_drv_info *)arg = kernel.info;
		return 0;
	case UGDS_DRV_MAP:
		return map(arg);
	case UGDS_DRV_EXTENTS:
		return extents(arg);
	case UGDS_DRV_UNMAP:
		kernel.unmapped = ((struct ugds_drv_unmap *)arg)->token;
		return kernel.state & UGDS_DRV_STATE_REMOVED ? ENODEV : 0;
	case UGDS_DRV_QUEUE_ALLOC: {
		struct ugds_drv_queue_alloc *q = arg;

		q->nbytes = align_up(q->nbytes, PAGE);
		q->ret_token = ++kernel.token;
		q->ret_iova = 0xabcd000;
		q->ret_offset = kernel.queue_offset = UGDS_DRV_MMAP_QUEUE + kernel.token * (4u << 20);
		return 0;
	}
	case UGDS_DRV_IRQ_BIND:
		kernel.last_word = ((struct ugds_drv_irq_bind *)arg)->word;
		((struct ugds_drv_irq_bind *)arg)->ret_binding = 100 + kernel.nr_binds++;
		return 0;
	case UGDS_DRV_IRQ_UNBIND:
		kernel.nr_unbinds++;
		return 0;
	case UGDS_DRV_STATE:
		return state(arg);
	case UGDS_DRV_RESET:
		kernel.resets[kernel.nr_resets++ % 8] = ((struct ugds_drv_reset *)arg)->how;
		return kernel.state & UGDS_DRV_STATE_REMOVED ? ENODEV : 0;
	case UGDS_DRV_TOPOLOGY:
		((struct ugds_drv_topology *)arg)->ret_iommu = UGDS_DRV_IOMMU_TRANSLATED;
		return 0;
	default:
		return ENOTTY;
	}
}

static int fake_fd = -1;

/* In front of the C library's. What is no device of ours is the real kernel's to answer. */
int ioctl(int fd, unsigned long cmd, ...)
{
	struct stat st, ours;
	va_list ap;
	void *arg;

	va_start(ap, cmd);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (fstat(fd, &st) || fstat(fake_fd, &ours) || st.st_ino != ours.st_ino || st.st_dev != ours.st_dev)
		return (int)syscall(SYS_ioctl, fd, cmd, arg);
	errno = answer(cmd, arg);
	return errno ? -1 : 0;
}

static void power_on(void)
{
	memset(&kernel, 0, sizeof(kernel));
	kernel.pieces = 1;
	kernel.event_fd = -1;
	kernel.info = (struct ugds_drv_info){
		.api_major = UGDS_DRV_API_MAJOR,
		.page_size = PAGE,
		.caps = UGDS_DRV_CAP_HOST | UGDS_DRV_CAP_ARM | UGDS_DRV_CAP_FLR,
		.bar_bytes = 16384,
		.bar_map_bytes = 16384,
		.nr_vectors = 3,
		.vector_owners = 4,
		.armed_words = 2,
		.armed_stride = 64,
		.numa_node = 1,
		.domain = 0x10,
		.bus = 0x65,
		.devfn = 0x0b,
	};
}

static struct pcie_dev *opened(void)
{
	char path[64], err[512] = "";
	struct pcie_dev *dev = NULL;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fake_fd);
	okf(!kmod_transport_new(path, &dev, err, sizeof(err)), "opened %s", err);
	return dev;
}

static void refuses(const char *path, int want, const char *words)
{
	char err[512] = "";
	struct pcie_dev *dev;
	int rc = kmod_transport_new(path, &dev, err, sizeof(err));

	okf(rc == want && strstr(err, words), "%d: %s", rc, err);
}

static void test_refusals(void)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fake_fd);
	refuses("/dev/ugds_drv4096", -ENOENT, "aiougds bind ADDRESS");
	if (lacks_ioctl(UGDS_DRV_INFO))
		skip("no ioctl of a driver here");
	else
		refuses("/dev/null", -EPROTO, "no device of ugds_drv");
	kernel.info.api_major++;
	refuses(path, -EPROTO, "version 2.0 of its interface, this aiougds 1.0");
	kernel.info.api_major--;
	kernel.info.bar_map_bytes = 4096;
	refuses(path, -EOPNOTSUPP, "without the doorbells");
	power_on();
}

static void test_place(void)
{
	struct pcie_dev *dev = opened();
	struct nvme_place p;
	volatile uint32_t *bar;

	dev->ops->place(dev->t, &p);
	okf(!strcmp(p.bus, "0010:65:01.3") && p.numa_node == 1 && p.iommu == NVME_IOMMU_TRANSLATED,
	    "where it is: %s", p.bus);
	okf(dev->nr_vectors == 3 && dev->doorbell_bytes == 16384 - 4096, "vectors and doorbells");
	okf(dev->flags == (NVME_TR_DIRECT | NVME_TR_ARM | NVME_TR_OWN_WORDS), "direct, armed");
	bar = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_SHARED, fake_fd, 0);
	dev->ops->reg_write64(dev->t, 0x28, 0x1122334455667788);
	okf(bar[10] == 0x55667788 && bar[11] == 0x11223344, "64 bits are written in halves");
	okf(dev->ops->reg_read64(dev->t, 0x28) == 0x1122334455667788 &&
		    dev->ops->reg_read32(dev->t, 0x2c) == 0x11223344,
	    "and read");
	munmap((void *)(uintptr_t)bar, 16384);
	dev->ops->close(dev->t);
}

static void test_map(void)
{
	static uint8_t mem[64 * 4096] __attribute__((aligned(4096)));
	struct pcie_dev *dev = opened();
	struct dma_mapping m;

	okf(!dev->ops->dma_map(dev->t, mem + 8, 100, DMA_READ, &m) && m.nr == 1 && m.first_off == 8 &&
		    m.extents[0].iova == iova_of(0),
	    "a small one");
	okf(kernel.last_flags == (UGDS_DRV_MAP_READ | UGDS_DRV_MAP_WRITE),
	    "is mapped as all of its page is: for writing");
	free(m.extents);
	kernel.no_write = 1;
	okf(!dev->ops->dma_map(dev->t, mem, 100, DMA_READ, &m) && kernel.last_flags == UGDS_DRV_MAP_READ,
	    "read-only memory for reading");
	free(m.extents);
	okf(dev->ops->dma_map(dev->t, mem, 100, DMA_READ | DMA_WRITE, &m) == -EFAULT, "and not for writing");
	kernel.no_write = 0;
	kernel.pieces = 1100;
	okf(!dev->ops->dma_map(dev->t, mem, 1100 * PAGE, DMA_READ | DMA_WRITE, &m) && m.nr == 1100,
	    "more pieces than are told at once");
	for (uint32_t i = 0; i < m.nr; i++)
		if (m.extents[i].iova != iova_of(i))
			okf(false, "piece %u is wrong", i);
	okf(!dev->ops->dma_unmap(dev->t, m.handle) && kernel.unmapped == m.handle, "unmapped by its token");
	free(m.extents);
	kernel.extents_fail = EIO;
	okf(dev->ops->dma_map(dev->t, mem, 1100 * PAGE, DMA_READ | DMA_WRITE, &m) == -EIO &&
		    kernel.unmapped == kernel.token,
	    "the rest is not told: it is unmapped again");
	kernel.extents_fail = 0;
	kernel.map_fails = ENOMEM;
	okf(dev->ops->dma_map(dev->t, mem, 100, DMA_READ, &m) == -ENOMEM, "a limit");
	kernel.map_fails = 0;
	kernel.state = UGDS_DRV_STATE_REMOVED;
	okf(!dev->ops->dma_unmap(dev->t, 5), "what is gone needs no unmapping");
	dev->ops->close(dev->t);
	power_on();
}

static void test_foreign(void)
{
	struct mem_foreign buf = { .kind = MEM_FOREIGN_DMABUF, .fd = 7, .offset = 4096 + 12 };
	struct mem_foreign cuda = { .kind = MEM_FOREIGN_CUDA, .fd = 7, .addr = 0x7f0000010010 };
	struct pcie_dev *dev = opened();
	struct dma_mapping m;

	kernel.traits = UGDS_DRV_MAPPED_REVOCABLE | UGDS_DRV_MAPPED_SYSTEM;
	okf(!dev->ops->dma_map_foreign(dev->t, &buf, 4096, DMA_READ | DMA_WRITE | DMA_PEER, &m) &&
		    kernel.last_kind == UGDS_DRV_MAP_DMABUF && !kernel.last_vaddr &&
		    kernel.last_offset == 4096 + 12 && m.first_off == 12 &&
		    kernel.last_flags & UGDS_DRV_MAP_REQUIRE_PEER,
	    "a dma-buf");
	okf(m.traits == (MEM_REVOCABLE | MEM_SYSTEM), "and what became of it");
	okf(!dev->ops->dma_revoked(dev->t, m.handle), "it is there");
	kernel.extents_fail = ESTALE;
	okf(dev->ops->dma_revoked(dev->t, m.handle), "it was taken away");
	kernel.extents_fail = 0;
	free(m.extents);
	okf(!dev->ops->dma_map_foreign(dev->t, &cuda, 4096, DMA_READ | DMA_WRITE, &m) &&
		    kernel.last_kind == UGDS_DRV_MAP_CUDA && kernel.last_vaddr == cuda.addr &&
		    !kernel.last_offset && m.first_off == 0x10,
	    "GPU memory");
	free(m.extents);
	buf.kind = 77;
	okf(dev->ops->dma_map_foreign(dev->t, &buf, 4096, DMA_READ, &m) == -EOPNOTSUPP, "a kind of its own");
	dev->ops->close(dev->t);
}

static void test_queues(void)
{
	struct pcie_dev *dev = opened();
	uint8_t *a, *b, *seen;
	uint64_t iova, token;
	bool huge = true;

	okf(!dev->ops->queue_alloc(dev->t, 10000, false, (void **)&a, &iova, &huge) && !huge &&
		    iova == 0xabcd000,
	    "the kernel's memory");
	token = kernel.token;
	a[9999] = 77;
	seen = mmap(NULL, 12288, PROT_READ, MAP_SHARED, fake_fd, (off_t)kernel.queue_offset);
	okf(seen[9999] == 77, "is mapped where it was said to be");
	munmap(seen, 12288);
	kernel.pieces = 2; /* no hugepage is one piece to this kernel */
	okf(!dev->ops->queue_alloc(dev->t, 10000, true, (void **)&b, &iova, &huge) && !huge,
	    "a hugepage that cannot be had is not said to be one");
	dev->ops->queue_free(dev->t, b, 10000);
	dev->ops->queue_free(dev->t, a, 10000);
	okf(kernel.unmapped == token, "freed by its token");
	dev->ops->close(dev->t);
	power_on();
}

static void test_words(void)
{
	struct pcie_dev *dev = opened();
	_Atomic uint32_t mine = 0, *w0 = dev->ops->word_get(dev->t), *w1 = dev->ops->word_get(dev->t);
	uint64_t a, b, c;
	int fd = eventfd(0, EFD_CLOEXEC);

	okf(w0 && w1 && (uint8_t *)w1 - (uint8_t *)w0 == 64, "two words, apart");
	okf(!dev->ops->word_get(dev->t), "and no third");
	okf(!dev->ops->irq_bind(dev->t, 1, fd, w1, &a) && kernel.last_word == 1, "bound by its index");
	okf(!dev->ops->irq_bind(dev->t, 1, fd, w1, &b) && a == b && kernel.nr_binds == 1,
	    "two pairs of an owner on one vector are one binding");
	okf(!dev->ops->irq_bind(dev->t, 2, fd, w1, &b) && a != b && kernel.nr_binds == 2,
	    "on two vectors they are two");
	okf(!dev->ops->irq_bind(dev->t, 2, fd, &mine, &c) && kernel.last_word == UGDS_DRV_NO_WORD,
	    "a word of somebody's own is none");
	okf(!dev->ops->irq_unbind(dev->t, a) && !kernel.nr_unbinds, "one pair is given back");
	okf(!dev->ops->irq_unbind(dev->t, a) && kernel.nr_unbinds == 1, "and the other");
	okf(dev->ops->irq_unbind(dev->t, a) == -ENOENT, "there is no third");
	dev->ops->word_put(dev->t, w0);
	okf(dev->ops->word_get(dev->t) == w0, "a word that was given back is taken again");
	dev->ops->close(dev->t);
	close(fd);
}

/* More than fit into a page: each can be written to. */
static void test_many_words(void)
{
	_Atomic uint32_t *w, *last = NULL;
	struct pcie_dev *dev;
	uint32_t n = 0;

	kernel.info.armed_words = 256;
	dev = opened();
	for (; (w = dev->ops->word_get(dev->t)); n++) {
		*w = n;
		last = w;
	}
	okf(n == 256 && *last == 255, "%u words in four pages", n);
	dev->ops->close(dev->t);
	power_on();
}

static void test_state(void)
{
	struct pcie_dev *dev = opened();

	okf(!dev->ops->path(dev->t), "all is well");
	okf(!dev->ops->watch(dev->t, 17) && kernel.event_fd == 17, "watched");
	okf(!dev->ops->path(dev->t) && kernel.event_fd == 17, "looking leaves the watcher");
	kernel.nr_resets = 0;
	okf(!dev->ops->start_dma(dev->t) && kernel.nr_resets == 2 &&
		    kernel.resets[0] == UGDS_DRV_RESET_DISABLE &&
		    kernel.resets[1] == UGDS_DRV_RESET_START_DMA,
	    "DMA starts from a disabled controller");
	okf(!dev->ops->reset(dev->t) && kernel.resets[2] == UGDS_DRV_RESET_FUNCTION, "the function's reset");
	okf(!dev->ops->stop_dma(dev->t) && kernel.resets[3] == UGDS_DRV_RESET_STOP_DMA, "DMA stops");
	kernel.state = UGDS_DRV_STATE_REVOKED;
	okf(dev->ops->path(dev->t) == -EHOSTDOWN, "memory was taken away");
	kernel.state |= UGDS_DRV_STATE_REMOVED;
	okf(dev->ops->path(dev->t) == -ENODEV, "it is gone");
	okf(!dev->ops->stop_dma(dev->t), "so its DMA has stopped");
	okf(dev->ops->start_dma(dev->t) == -ENODEV, "and does not start");
	dev->ops->close(dev->t);
}

int main(void)
{
	fake_fd = memfd_create("ugds", MFD_CLOEXEC);
	if (fake_fd < 0 || ftruncate(fake_fd, (off_t)(3ull << 40))) {
		printf("Bail out! no sparse memory\n");
		return 1;
	}
	power_on();
	test_refusals();
	test_place();
	test_map();
	test_foreign();
	test_queues();
	test_words();
	test_many_words();
	test_state();
	close(fake_fd);
	return done_testing();
}
