/* SPDX-License-Identifier: MIT */
/* ugds_exec.h. Thin: types are translated, nothing else. */
#include "api/api.h"
#include "include/ugds_exec.h"
#include "nvme/chan.h"

#include <unistd.h>

static struct nvme_pollers *pollers_of(struct ugds_exec *x) { return (struct nvme_pollers *)x; }

int ugds_exec_new(uint32_t threads, const int32_t *cpus, uint32_t nr_cpus, struct ugds_exec **ret)
{
	struct nvme_pollers *ps;
	int err = nvme_pollers_new(threads, cpus, nr_cpus, &ps);

	if (!err)
		*ret = (struct ugds_exec *)ps;
	return err;
}

int ugds_exec_free(struct ugds_exec *x)
{
	struct nvme_pollers *ps = pollers_of(x);

	/* acquire: whoever used it has let go */
	if (atomic_load_explicit(&ps->users, memory_order_acquire) && ps->pid == getpid())
		return -EBUSY;
	nvme_pollers_free(ps);
	return 0;
}

static void look_at(const struct nvme_poller *p, struct ugds_exec_thread *ret)
{
	*ret = (struct ugds_exec_thread){
		.tid = (uint32_t)atomic_load_explicit(&p->tid, memory_order_relaxed),
		.cpu = p->cpu,
		.controllers = atomic_load_explicit(&p->nr, memory_order_relaxed),
		.passes = atomic_load_explicit(&p->passes, memory_order_relaxed),
		.found = atomic_load_explicit(&p->found, memory_order_relaxed),
		.sleeps = atomic_load_explicit(&p->sleeps, memory_order_relaxed),
		.alive_ns = (uint64_t)(now_ns() - p->since),
	};
}

uint32_t ugds_exec_threads(struct ugds_exec *x, struct ugds_exec_thread *out, uint32_t max)
{
	struct nvme_pollers *ps = pollers_of(x);

	for (uint32_t i = 0; i < ps->nr && i < max; i++)
		look_at(&ps->p[i], &out[i]);
	return ps->nr;
}

int ugds_ctrl_executor(struct ugds_ctrl *uc, struct ugds_exec_thread *ret)
{
	api_visitor *in = api_enter(uc);
	struct nvme_ctrl *c;
	bool there;

	if (!in)
		return -ESHUTDOWN;
	c = uc->c;
	pthread_mutex_lock(&c->lock);
	there = c->exec;
	if (there)
		look_at(c->exec->poller, ret);
	pthread_mutex_unlock(&c->lock);
	return there;
}
