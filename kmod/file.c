// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The tenure of an open file: from open to the first of: its last close, the end of the process
 * that opened it (exec too), the removal of the function. Whatever ends it, the order is the same:
 * BAR0 zapped where threads may still run, the controller stopped, interrupts let go, memory let
 * go, newest first. Then the device is free for the next, though the file may stay open.
 */
#include <linux/eventfd.h>
#include <linux/pid.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>

#include "ugds_drv.h"

#define ENDING_WAIT (150 * HZ) /* CAP.TO can be 127 s */

static const struct ugds_limits limits = {
	.max_mappings = UGDS_MAX_MAPPINGS,
	.max_pages = (1ull << 44) >> PAGE_SHIFT,
};

/* dev->lock is held, and the device lock if it says so. why: what calls answer from now on. */
static void end_tenure(struct ugds_file *f, int why, bool device_locked)
{
	struct ugds_dev *dev = f->dev;
	unsigned long irq;

	down_write(&dev->bar_lock);
	f->bar_gone = true;
	ugds_bar_zap(f);
	up_write(&dev->bar_lock);

	/* Calls that run now end first; later ones see why. */
	down_write(&f->live);
	f->ended = why;
	up_write(&f->live);

	ugds_dev_stop(dev, device_locked);
	ugds_irq_signal_all(dev);
	ugds_irq_unbind_all(f);
	ugds_unmap_all(f);
	/* Whoever reads of the removal finds all of it done. */
	ugds_file_set_state(f, why == -ENODEV ? UGDS_DRV_STATE_REMOVED : 0);

	spin_lock_irqsave(&dev->dma_lock, irq);
	dev->owner = NULL;
	spin_unlock_irqrestore(&dev->dma_lock, irq);
	wake_up_all(&dev->freed);
}

static void end_if_owner(struct ugds_file *f, int why)
{
	struct ugds_dev *dev = f->dev;

	mutex_lock(&dev->lock);
	if (dev->owner == f)
		end_tenure(f, why, false);
	mutex_unlock(&dev->lock);
}

void ugds_dev_end_tenure(struct ugds_dev *dev)
{
	lockdep_assert_held(&dev->lock);
	if (dev->owner)
		end_tenure(dev->owner, -ENODEV, true);
	else
		ugds_dev_stop(dev, true);
}

/*
 * The address space of the opener is about to go: its last thread ended, or it runs another
 * program. Nobody executes in it any more and its pages are all there still. Called also by
 * unregister.
 */
static void opener_ended(struct mmu_notifier *notifier, struct mm_struct *mm)
{
	end_if_owner(container_of(notifier, struct ugds_file, notifier), -EOWNERDEAD);
}

static const struct mmu_notifier_ops notifier_ops = {
	.release = opener_ended,
};

/* ---- becoming the owner ---- */

/* All threads were told to end, or have: the tenure ends without anybody's doing. */
static bool is_ending(struct ugds_file *f)
{
	struct task_struct *task;
	bool ending;

	rcu_read_lock();
	task = pid_task(f->pid, PIDTYPE_TGID);
	ending = !task || READ_ONCE(task->signal->flags) & SIGNAL_GROUP_EXIT ||
		 (READ_ONCE(task->exit_state) && thread_group_empty(task));
	rcu_read_unlock();
	return ending;
}

static int try_to_own(struct ugds_file *f)
{
	struct ugds_dev *dev = f->dev;
	unsigned long irq;
	int err = 0;

	if (mutex_lock_killable(&dev->lock))
		return -EINTR;
	if (dev->removed) {
		err = -ENODEV;
	} else if (dev->owner) {
		err = is_ending(dev->owner) ? -EAGAIN : -EBUSY;
		if (err == -EBUSY)
			dev_dbg(&dev->pdev->dev, "is open in process %d\n",
				pid_vnr(dev->owner->pid));
	} else {
		spin_lock_irqsave(&dev->dma_lock, irq);
		dev->owner = f;
		spin_unlock_irqrestore(&dev->dma_lock, irq);
	}
	mutex_unlock(&dev->lock);
	return err;
}

static bool worth_trying(struct ugds_dev *dev)
{
	return !READ_ONCE(dev->owner) || READ_ONCE(dev->removed);
}

static int become_owner(struct ugds_file *f)
{
	struct ugds_dev *dev = f->dev;
	long left = ENDING_WAIT;
	int err;

	while ((err = try_to_own(f)) == -EAGAIN) {
		left = wait_event_killable_timeout(dev->freed, worth_trying(dev), left);
		if (left < 0)
			return -EINTR;
		if (!left)
			return -EBUSY;
	}
	return err;
}

/* ---- the object ---- */

static void file_free(struct ugds_file *f)
{
	if (f->state_event)
		eventfd_ctx_put(f->state_event);
	if (f->armed)
		free_pages((unsigned long)f->armed, UGDS_ARMED_ORDER);
	if (f->dummy[0])
		__free_page(f->dummy[0]);
	if (f->dummy[1])
		__free_page(f->dummy[1]);
	kvfree(f->words);
	xa_destroy(&f->bindings);
	ugds_ledger_done(&f->ledger);
	put_pid(f->pid);
	mmdrop(f->mm);
	ugds_dev_put(f->dev);
	kfree(f);
}

static int file_fill(struct ugds_file *f)
{
	int i;

	f->words = kvcalloc(UGDS_ARMED_WORDS, sizeof(*f->words), GFP_KERNEL_ACCOUNT);
	f->armed = (void *)__get_free_pages(GFP_KERNEL_ACCOUNT | __GFP_ZERO | __GFP_COMP,
					    UGDS_ARMED_ORDER);
	if (!f->words || !f->armed)
		return -ENOMEM;
	for (i = 0; i < ARRAY_SIZE(f->dummy); i++) {
		f->dummy[i] = alloc_page(GFP_KERNEL_ACCOUNT);
		if (!f->dummy[i])
			return -ENOMEM;
		memset(page_address(f->dummy[i]), 0xff, PAGE_SIZE);
	}
	return 0;
}

/* Takes over the reference to dev. */
static struct ugds_file *file_new(struct ugds_dev *dev, struct address_space *mapping)
{
	struct ugds_file *f = kzalloc(sizeof(*f), GFP_KERNEL_ACCOUNT);

	if (!f) {
		ugds_dev_put(dev);
		return NULL;
	}
	f->dev = dev;
	f->mapping = mapping;
	f->mm = current->mm;
	mmgrab(f->mm);
	f->pid = get_pid(task_tgid(current));
	init_rwsem(&f->live);
	mutex_init(&f->reset_lock);
	mutex_init(&f->irq_lock);
	xa_init(&f->bindings);
	ugds_ledger_init(&f->ledger, &limits, ugds_charge);
	f->notifier.ops = &notifier_ops;
	if (file_fill(f)) {
		file_free(f);
		return NULL;
	}
	return f;
}

struct ugds_file *ugds_file_open(struct ugds_dev *dev, struct address_space *mapping)
{
	struct ugds_file *f = file_new(dev, mapping);
	int err;

	if (!f)
		return ERR_PTR(-ENOMEM);
	err = mmu_notifier_register(&f->notifier, f->mm);
	if (err)
		goto free;
	err = become_owner(f);
	if (err)
		goto unregister;
	return f;

unregister:
	mmu_notifier_unregister(&f->notifier, f->mm);
free:
	file_free(f);
	return ERR_PTR(err);
}

void ugds_file_close(struct ugds_file *f)
{
	end_if_owner(f, -EOWNERDEAD);
	/* Waits for a release callback that runs. */
	mmu_notifier_unregister(&f->notifier, f->mm);
	file_free(f);
}
