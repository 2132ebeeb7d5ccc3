/* Arrays by name, without a scan: what `compare` asks for. */
#ifndef XPD_READER_ARRAYS_H
#define XPD_READER_ARRAYS_H

#include "io/read/read.h"
#include "xptychod/protocol.h"

/* Answers a READ whose body has `arrays_only`: [{path, dataset or null, use: "object" or "probe"}].
 * SCAN then holds `arrays`: [{name, type, shape, dataset, pixel_m, origin_m, extent_m}], in the
 * same order. */
xpp_ipc_result xpd_arrays_answer(int socket, const json_t *wanted, const xpe_roots *roots);

#endif
