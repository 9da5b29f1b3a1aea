/* SPDX-License-Identifier: MIT */
/* ugds_own.h: opening a transport of the user's own. */
#include "transport/own.h"
#include "include/ugds_own.h"
#include "api/api.h"

int ugds_open_transport(const void *transport, const struct ugds_open_params *p, struct ugds_ctrl **ret,
			struct ugds_error *err)
{
	char text[sizeof(err->text)] = "";
	struct pcie_dev *dev;
	int rc = own_transport_new(transport, &dev, text, sizeof(text));

	if (rc) {
		api_error(err, rc, 0, text);
		return rc;
	}
	return api_open(dev->ops->name, &pcie_ctrl_ops, dev, p, ret, err);
}
