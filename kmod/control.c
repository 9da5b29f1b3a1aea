// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The few things that the module does to a controller itself: stop it, reset it, and switch its bus
 * mastering. Registers of all ones are those of a function that is gone; nothing here waits for it.
 */
#include <linux/delay.h>
#include <linux/io-64-nonatomic-lo-hi.h>
#include <linux/iommu.h>
#include <linux/sched/signal.h>

#include "ugds_drv.h"

#define REG_CAP 0x00
#define REG_CC 0x14
#define REG_CSTS 0x1c
#define CC_EN BIT(0)
#define CSTS_RDY BIT(0)
#define ALL_ONES 0xffffffffu

/* ---- bus mastering and state: dma_lock is held ---- */

static void state_changed(struct ugds_file *f, u32 state)
{
	if (f->state == state)
		return;
	WRITE_ONCE(f->state, state);
	if (f->state_event)
		ugds_eventfd_signal(f->state_event);
}

static void dma_off_locked(struct ugds_dev *dev)
{
	u16 command;

	pci_clear_master(dev->pdev);
	/* A read is answered after what the device had written already. */
	pci_read_config_word(dev->pdev, PCI_COMMAND, &command);
	dev->dma_on = false;
}

static u32 with_dma(struct ugds_dev *dev, u32 state)
{
	return dev->dma_on ? state | UGDS_DRV_STATE_DMA : state & ~UGDS_DRV_STATE_DMA;
}

static void cut_locked(struct ugds_dev *dev, u32 why)
{
	dma_off_locked(dev);
	dev->cut = true;
	if (why & UGDS_DRV_STATE_REVOKED)
		dev->nr_revocations++;
	if (dev->owner)
		state_changed(dev->owner, with_dma(dev, dev->owner->state | why));
}

void ugds_dev_cut(struct ugds_dev *dev, u32 why)
{
	unsigned long irq;

	spin_lock_irqsave(&dev->dma_lock, irq);
	cut_locked(dev, why);
	spin_unlock_irqrestore(&dev->dma_lock, irq);
}

void ugds_file_set_state(struct ugds_file *f, u32 state)
{
	unsigned long irq;

	spin_lock_irqsave(&f->dev->dma_lock, irq);
	state_changed(f, state);
	spin_unlock_irqrestore(&f->dev->dma_lock, irq);
}

u32 ugds_file_watch(struct ugds_file *f, struct eventfd_ctx *event)
{
	unsigned long irq;
	u32 state;

	spin_lock_irqsave(&f->dev->dma_lock, irq);
	if (event)
		swap(event, f->state_event);
	state = f->state;
	spin_unlock_irqrestore(&f->dev->dma_lock, irq);
	if (event)
		eventfd_ctx_put(event);
	return state;
}

bool ugds_file_is_revoked(struct ugds_file *f)
{
	return READ_ONCE(f->state) & UGDS_DRV_STATE_REVOKED;
}

void ugds_file_revoke(struct ugds_mapping *m)
{
	struct ugds_file *f = m->file;

	if (atomic_xchg(&m->revoked, 1))
		return;
	atomic_inc(&f->nr_revoked);
	ugds_dev_cut(f->dev, UGDS_DRV_STATE_REVOKED);
	ugds_irq_signal_all(f->dev);
}

static u32 revocations(struct ugds_dev *dev)
{
	unsigned long irq;
	u32 nr;

	spin_lock_irqsave(&dev->dma_lock, irq);
	nr = dev->nr_revocations;
	spin_unlock_irqrestore(&dev->dma_lock, irq);
	return nr;
}

/*
 * The controller stopped by itself or was reset: what was cut cannot go on. A revocation that came
 * since (before: how many there had been) stays to be seen.
 */
static void recovered(struct ugds_dev *dev, u32 before)
{
	unsigned long irq;

	spin_lock_irqsave(&dev->dma_lock, irq);
	dev->cut = false;
	if (dev->owner && dev->nr_revocations == before)
		state_changed(dev->owner, dev->owner->state & ~UGDS_DRV_STATE_REVOKED);
	spin_unlock_irqrestore(&dev->dma_lock, irq);
}

/* ---- the controller ---- */

static bool is_gone(struct ugds_dev *dev)
{
	return READ_ONCE(dev->removed) || readl(dev->regs + REG_CSTS) == ALL_ONES;
}

/* CC.EN = 0, then CSTS.RDY = 0 awaited. -ENODEV gone, -ETIMEDOUT it did not obey, -EINTR. */
static int disable(struct ugds_dev *dev, bool killable)
{
	u32 cc = readl(dev->regs + REG_CC);
	u32 units = (lo_hi_readq(dev->regs + REG_CAP) >> 24) & 0xff;
	unsigned long limit = jiffies + msecs_to_jiffies((units + 1) * 500);
	unsigned long pause_us = 20;

	if (cc == ALL_ONES)
		return -ENODEV;
	if (cc & CC_EN)
		writel(cc & ~CC_EN, dev->regs + REG_CC);
	for (;;) {
		bool late = time_after(jiffies, limit);
		u32 csts = readl(dev->regs + REG_CSTS);

		if (csts == ALL_ONES)
			return -ENODEV;
		if (!(csts & CSTS_RDY))
			return 0;
		if (late)
			return -ETIMEDOUT;
		if (killable && fatal_signal_pending(current))
			return -EINTR;
		usleep_range(pause_us, pause_us * 2);
		pause_us = min(pause_us * 2, 20000ul);
	}
}

/*
 * The device lock is tried, not awaited: remove holds it while it waits for us. After a removal has
 * begun the reset is its affair.
 */
static int reset_unlocked(struct ugds_dev *dev)
{
	unsigned long limit = jiffies + 60 * HZ;
	int err;

	do {
		if (READ_ONCE(dev->removed))
			return -ENODEV;
		err = pci_try_reset_function(dev->pdev);
		if (err != -EAGAIN)
			return err;
		msleep(20);
	} while (time_before(jiffies, limit));
	return -EBUSY;
}

static int reset_locked(struct ugds_dev *dev)
{
	int err;

	pci_save_state(dev->pdev);
	err = __pci_reset_function_locked(dev->pdev);
	pci_restore_state(dev->pdev);
	return err;
}

bool ugds_can_reset(struct ugds_dev *dev)
{
	return dev->pdev->reset_methods[0];
}

/* Bus mastering is off already, so the saved state holds it off. */
static int reset_function(struct ugds_dev *dev, bool device_locked)
{
	int err;

	if (!ugds_can_reset(dev))
		return -EOPNOTSUPP;
	WRITE_ONCE(dev->resetter, current);
	err = device_locked ? reset_locked(dev) : reset_unlocked(dev);
	WRITE_ONCE(dev->resetter, NULL);
	if (err)
		return err;
	if (is_gone(dev))
		return -ENODEV;
	return readl(dev->regs + REG_CC) & CC_EN ? -EIO : 0;
}

void ugds_dev_stop(struct ugds_dev *dev, bool device_locked)
{
	u32 before = revocations(dev);
	int err = disable(dev, false);

	ugds_dev_cut(dev, 0);
	if (err == -ETIMEDOUT) {
		dev_warn(&dev->pdev->dev, "controller does not stop: resetting the function\n");
		err = reset_function(dev, device_locked);
	}
	if (!err)
		recovered(dev, before);
	else if (err != -ENODEV)
		dev_err(&dev->pdev->dev, "controller not stopped (%d), bus mastering is off\n",
			err);
}

/* ---- RESET ---- */

static int start_dma(struct ugds_dev *dev)
{
	unsigned long irq;
	int err = 0;

	spin_lock_irqsave(&dev->dma_lock, irq);
	if (is_gone(dev)) {
		err = -ENODEV;
	} else if (dev->cut && readl(dev->regs + REG_CC) & CC_EN) {
		err = -EPERM;
	} else if (dev->owner->state & UGDS_DRV_STATE_REVOKED) {
		err = -EIO;
	} else {
		pci_set_master(dev->pdev);
		dev->dma_on = true;
		dev->cut = false;
		state_changed(dev->owner, with_dma(dev, dev->owner->state));
	}
	spin_unlock_irqrestore(&dev->dma_lock, irq);
	return err;
}

static int function_reset(struct ugds_file *f)
{
	struct ugds_dev *dev = f->dev;
	u32 before;
	int err;

	ugds_dev_cut(dev, 0);
	before = revocations(dev);
	/* Nobody may touch registers while the function cannot answer: faults wait for the end. */
	down_write(&dev->bar_lock);
	ugds_bar_zap(f);
	err = reset_function(dev, false);
	up_write(&dev->bar_lock);
	if (!err)
		recovered(dev, before);
	return err;
}

/* One that began just now leaves the state REVOKED, and the caller comes again. */
static int await_others_reset(struct ugds_dev *dev)
{
	int err = wait_event_killable(dev->freed,
				      !READ_ONCE(dev->resetting) || READ_ONCE(dev->removed));

	return err ? -EINTR : 0;
}

int ugds_file_reset(struct ugds_file *f, u32 how)
{
	struct ugds_dev *dev = f->dev;
	u32 before;
	int err;

	if (how != UGDS_DRV_RESET_STOP_DMA && await_others_reset(dev))
		return -EINTR;
	if (mutex_lock_killable(&f->reset_lock))
		return -EINTR;
	switch (how) {
	case UGDS_DRV_RESET_STOP_DMA:
		ugds_dev_cut(dev, 0);
		err = 0;
		break;
	case UGDS_DRV_RESET_START_DMA:
		err = start_dma(dev);
		break;
	case UGDS_DRV_RESET_DISABLE:
		before = revocations(dev);
		err = disable(dev, true);
		if (!err)
			recovered(dev, before);
		break;
	case UGDS_DRV_RESET_FUNCTION:
		err = function_reset(f);
		break;
	default:
		err = -EINVAL;
	}
	mutex_unlock(&f->reset_lock);
	return err;
}
