/* SPDX-License-Identifier: MIT */
/* ugds_stream.h */
#include "api/api.h"
#include "include/ugds_stream.h"

int ugds_stream_open(struct ugds_ctrl *c, const struct ugds_stream_params *p, struct ugds_stream **ret,
		     struct ugds_error *err)
{
	(void)c;
	(void)p;
	(void)ret;
	api_error(err, -ENOSYS, 0, "transfers in the order of a stream are not there yet");
	return -ENOSYS;
}

int ugds_stream_close(struct ugds_stream *s, int force)
{
	(void)s;
	(void)force;
	return -ENOSYS;
}

void ugds_stream_free(struct ugds_stream *s) { (void)s; }

int ugds_stream_info(struct ugds_stream *s, struct ugds_stream_info *ret)
{
	(void)s;
	(void)ret;
	return -ENOSYS;
}

int ugds_stream_enqueue(struct ugds_stream *s, struct ugds_ns *ns, const struct ugds_stream_item *items,
			uint32_t n, const struct ugds_stream_how *how, struct ugds_stream_started *ret,
			struct ugds_error *err)
{
	(void)s;
	(void)ns;
	(void)items;
	(void)n;
	(void)how;
	(void)ret;
	api_error(err, -ENOSYS, 0, "transfers in the order of a stream are not there yet");
	return -ENOSYS;
}

int ugds_stream_state(struct ugds_stream *s, uint64_t token, struct ugds_stream_result *ret)
{
	(void)s;
	(void)token;
	(void)ret;
	return -ENOSYS;
}

int ugds_stream_cancel(struct ugds_stream *s, uint64_t token)
{
	(void)s;
	(void)token;
	return 0;
}

int ugds_stream_resume(struct ugds_stream *s, uint64_t token)
{
	(void)s;
	(void)token;
	return 0;
}

int ugds_stream_fail(struct ugds_stream *s, uint64_t token)
{
	(void)s;
	(void)token;
	return 0;
}

void ugds_stream_release(struct ugds_stream *s, uint64_t token)
{
	(void)s;
	(void)token;
}

int ugds_sink_open(struct ugds_ctrl *c, struct ugds_sink **ret)
{
	(void)c;
	(void)ret;
	return -ENOSYS;
}

int ugds_sink_fd(struct ugds_sink *k)
{
	(void)k;
	return -ENOSYS;
}

int ugds_sink_reap(struct ugds_sink *k, struct ugds_stream_result *out, uint32_t max)
{
	(void)k;
	(void)out;
	(void)max;
	return -ENOSYS;
}

void ugds_sink_close(struct ugds_sink *k) { (void)k; }

int ugds_stream_watch(struct ugds_stream *s, uint64_t token, struct ugds_sink *k)
{
	(void)s;
	(void)token;
	(void)k;
	return -ENOSYS;
}

int ugds_sink_event(struct ugds_sink *k, uint32_t vendor, int32_t device, uint64_t ctx, uint64_t event,
		    uint64_t *ret_token, int *ret_code)
{
	(void)k;
	(void)vendor;
	(void)device;
	(void)ctx;
	(void)event;
	(void)ret_token;
	(void)ret_code;
	return -ENOSYS;
}

void ugds_sink_event_drop(struct ugds_sink *k, uint64_t token)
{
	(void)k;
	(void)token;
}
