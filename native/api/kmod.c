/* SPDX-License-Identifier: MIT */
/* ugds.h: opening a PCI function of the kernel helper. */
#include "transport/kmod.h"
#include "api/api.h"

int ugds_open_kmod(const char *path, const struct ugds_open_params *p, struct ugds_ctrl **ret,
		   struct ugds_error *err)
{
	char text[sizeof(err->text)] = "";
	struct pcie_dev *dev;
	int rc = kmod_transport_new(path, &dev, text, sizeof(text));

	if (rc) {
		api_error(err, rc, 0, text);
		return rc;
	}
	return api_open("kmod", &pcie_ctrl_ops, dev, p, ret, err);
}
