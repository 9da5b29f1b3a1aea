// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * MSI-X vectors and the eventfds that they signal.
 *
 * A vector has a bounded list of bindings under a spin lock that the handler holds while it
 * signals: once a binding is off the list and the lock was released, nothing touches its eventfd or
 * word.
 */
#include <linux/eventfd.h>
#include <linux/interrupt.h>
#include <linux/nospec.h>

#include "ugds_drv.h"

struct binding {
	struct list_head node; /* of the vector's owners */
	struct ugds_vector *vector;
	struct eventfd_ctx *event;
	u32 *word; /* NULL: signal always */
	u32 word_index;
};

static irqreturn_t fired(int irq, void *arg)
{
	struct ugds_vector *vector = arg;
	unsigned long flags;
	struct binding *b;

	spin_lock_irqsave(&vector->lock, flags);
	list_for_each_entry(b, &vector->owners, node) {
		/*
		 * Fully ordered: the owner sets its word, fences and looks at the queue once more.
		 * Either it sees the completion that caused this, or its word is seen here.
		 */
		if (!b->word || xchg(b->word, 0))
			ugds_eventfd_signal(b->event);
	}
	spin_unlock_irqrestore(&vector->lock, flags);
	return IRQ_HANDLED;
}

/* Something happened that no interrupt will tell. Words are left alone: every owner looks. */
void ugds_irq_signal_all(struct ugds_dev *dev)
{
	unsigned long flags;
	struct binding *b;
	u32 i;

	for (i = 0; i < dev->nr_vectors; i++) {
		struct ugds_vector *vector = &dev->vectors[i];

		spin_lock_irqsave(&vector->lock, flags);
		list_for_each_entry(b, &vector->owners, node)
			ugds_eventfd_signal(b->event);
		spin_unlock_irqrestore(&vector->lock, flags);
	}
}

/* The words: one eventfd each, on any number of vectors. irq_lock is held. */

static int word_claim(struct ugds_file *f, struct binding *b)
{
	struct ugds_word *w;

	if (b->word_index == UGDS_DRV_NO_WORD)
		return 0;
	w = &f->words[array_index_nospec(b->word_index, UGDS_ARMED_WORDS)];
	if (w->bindings && w->event != b->event)
		return -EEXIST;
	w->event = b->event;
	w->bindings++;
	b->word = f->armed + (size_t)b->word_index * UGDS_ARMED_STRIDE;
	return 0;
}

static void word_release(struct ugds_file *f, struct binding *b)
{
	if (b->word)
		f->words[b->word_index].bindings--;
}

/* The interrupt is requested while the vector has owners. irq_lock is held. */

static int attach(struct ugds_file *f, struct binding *b)
{
	struct ugds_vector *vector = b->vector;
	struct ugds_dev *dev = f->dev;
	int irq = pci_irq_vector(dev->pdev, vector->index);
	unsigned long flags;
	int err;

	if (vector->nr_owners >= UGDS_VECTOR_OWNERS)
		return -ENOSPC;
	if (irq < 0)
		return irq;
	if (!vector->nr_owners) {
		err = request_irq(irq, fired, 0, vector->name, vector);
		if (err)
			return err;
	}
	vector->nr_owners++;
	spin_lock_irqsave(&vector->lock, flags);
	list_add_tail(&b->node, &vector->owners);
	spin_unlock_irqrestore(&vector->lock, flags);
	return 0;
}

static void detach(struct ugds_file *f, struct binding *b)
{
	struct ugds_vector *vector = b->vector;
	unsigned long flags;

	spin_lock_irqsave(&vector->lock, flags);
	list_del(&b->node);
	spin_unlock_irqrestore(&vector->lock, flags);
	if (!--vector->nr_owners)
		free_irq(pci_irq_vector(f->dev->pdev, vector->index), vector);
}

static void release(struct ugds_file *f, struct binding *b)
{
	detach(f, b);
	word_release(f, b);
	eventfd_ctx_put(b->event);
	f->nr_bindings--;
	kfree(b);
}

static int bind_locked(struct ugds_file *f, struct binding *b, u64 *ret_id)
{
	u64 id = f->last_binding + 1;
	int err;

	if (f->nr_bindings >= UGDS_MAX_BINDINGS)
		return -ENOSPC;
	err = word_claim(f, b);
	if (err)
		return err;
	err = xa_err(xa_store(&f->bindings, id, b, GFP_KERNEL_ACCOUNT));
	if (err)
		goto release_word;
	err = attach(f, b);
	if (err)
		goto forget;
	f->last_binding = id;
	f->nr_bindings++;
	*ret_id = id;
	return 0;

forget:
	xa_erase(&f->bindings, id);
release_word:
	word_release(f, b);
	return err;
}

int ugds_irq_bind(struct ugds_file *f, struct ugds_drv_irq_bind *arg)
{
	struct binding *b;
	int err;

	if (arg->vector >= f->dev->nr_vectors)
		return -EINVAL;
	b = kzalloc(sizeof(*b), GFP_KERNEL_ACCOUNT);
	if (!b)
		return -ENOMEM;
	b->vector = &f->dev->vectors[array_index_nospec(arg->vector, f->dev->nr_vectors)];
	b->word_index = arg->word;
	b->event = eventfd_ctx_fdget(arg->fd);
	if (IS_ERR(b->event)) {
		kfree(b);
		return -EBADF;
	}
	mutex_lock(&f->irq_lock);
	err = bind_locked(f, b, &arg->ret_binding);
	mutex_unlock(&f->irq_lock);
	if (err) {
		eventfd_ctx_put(b->event);
		kfree(b);
	}
	return err;
}

int ugds_irq_unbind(struct ugds_file *f, u64 id)
{
	struct binding *b;

	mutex_lock(&f->irq_lock);
	b = xa_erase(&f->bindings, id);
	if (b)
		release(f, b);
	mutex_unlock(&f->irq_lock);
	return b ? 0 : -ENOENT;
}

void ugds_irq_unbind_all(struct ugds_file *f)
{
	struct binding *b;
	unsigned long id;

	mutex_lock(&f->irq_lock);
	xa_for_each(&f->bindings, id, b) {
		xa_erase(&f->bindings, id);
		release(f, b);
	}
	mutex_unlock(&f->irq_lock);
}

/* ---- the device's part ---- */

/* One for the admin queue and each of 64 pairs, or two for each CPU. */
static int vectors_wanted(struct pci_dev *pdev)
{
	int have = pci_msix_vec_count(pdev);

	return min(have, max(65, (int)(2 * num_possible_cpus() + 1)));
}

int ugds_irq_init(struct ugds_dev *dev)
{
	int nr = vectors_wanted(dev->pdev);
	int i;

	if (nr > 0)
		nr = pci_alloc_irq_vectors(dev->pdev, 1, nr, PCI_IRQ_MSIX);
	if (nr < 0) {
		/* Polling needs none. INFO says how many there are. */
		dev_warn(&dev->pdev->dev, "no MSI-X vectors (%d): only polling is possible\n", nr);
		return 0;
	}
	dev->vectors = kcalloc(nr, sizeof(*dev->vectors), GFP_KERNEL);
	if (!dev->vectors) {
		pci_free_irq_vectors(dev->pdev);
		return -ENOMEM;
	}
	for (i = 0; i < nr; i++) {
		struct ugds_vector *vector = &dev->vectors[i];

		spin_lock_init(&vector->lock);
		INIT_LIST_HEAD(&vector->owners);
		vector->index = i;
		snprintf(vector->name, sizeof(vector->name), UGDS_NAME "%d-q%d", dev->minor, i);
	}
	dev->nr_vectors = nr;
	return 0;
}

void ugds_irq_done(struct ugds_dev *dev)
{
	if (dev->nr_vectors)
		pci_free_irq_vectors(dev->pdev);
}
