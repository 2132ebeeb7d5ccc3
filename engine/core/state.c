/* Making, filling and reading what the devices of a run hold. */
#include "state.h"

#include "backend/util.h"
#include "math/order.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

xpe_status xpe_state_wait(xpe_run *run, xpe_error *err)
{
    return run->backend->wait(run->team, err);
}

xpe_status xpe_state_order(xpe_run *run, xpe_error *err)
{
    return run->backend->order ? run->backend->order(run->team, err)
                               : run->backend->wait(run->team, err);
}

void xpe_checkerboard(xpe_c32 *field, int64_t n)
{
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = (r + 1) % 2; c < n; c += 2)
            field[r * n + c] = (xpe_c32){-field[r * n + c].re, -field[r * n + c].im};
}

bool xpe_state_next_batch_of(const xpe_run *run, const xpe_shard *shard, int64_t stop,
                             xpe_batch *batch)
{
    int64_t cap = run->stage.batch_size > 0 ? run->stage.batch_size : shard->frames;

    batch->block = shard->frames;
    batch->first += batch->count;
    batch->count = xpe_min64(cap, stop - batch->first);
    return batch->count > 0;
}

bool xpe_state_next_batch(const xpe_run *run, const xpe_shard *shard, xpe_batch *batch)
{
    return xpe_state_next_batch_of(run, shard, shard->frames, batch);
}

/* -------------------------------------------------------------------------------- making */

typedef struct want {
    size_t member;
    int64_t bytes;
} want;

static xpe_status make_buffers(xpe_run *run, int g, const want *wants, size_t count, xpe_error *err)
{
    for (size_t i = 0; i < count; i++) {
        xpe_buffer **slot = (xpe_buffer **)(void *)((char *)&run->shards[g] + wants[i].member);
        xpe_status st;
        if (wants[i].bytes <= 0)
            continue;
        st = run->backend->buffer_create(slot, run->team, g, (size_t)wants[i].bytes, err);
        if (st != XPE_OK)
            return st;
    }
    return XPE_OK;
}

/* Buffers of every algorithm: amplitudes, the image on the window, the modes. */
static xpe_status make_common(xpe_run *run, int g, xpe_error *err)
{
    const xpe_shard *s = &run->shards[g];
    int64_t j = s->frames, plane = run->n * run->n, k = run->modes_max;
    const want wants[] = {
        {XPE_AT(first), j * 8},
        {XPE_AT(y), j * run->backend->amplitude_bytes(run->n)},
        {XPE_AT(energy), j * 8},
        {XPE_AT(masked), j * 8},
        {XPE_AT(image), s->window_rows * run->cols * 8},
        {XPE_AT(d), k * plane * 8},
        {XPE_AT(probe), k * plane * 8},
        {XPE_AT(divider), k * plane * 8},
        {XPE_AT(weight), k * plane * 4},
        {XPE_AT(mode_energy), k * run->n * 8},
        {XPE_AT(mode_max), k * run->n * 24},
        {XPE_AT(numbers), sizeof(xpe_numbers)},
    };
    return make_buffers(run, g, wants, sizeof wants / sizeof *wants, err);
}

static xpe_status make_pmace(xpe_run *run, int g, xpe_error *err)
{
    const xpe_shard *s = &run->shards[g];
    int64_t j = s->frames, plane = run->n * run->n, k = run->modes_max, blind = !run->known,
            owner = g == 0;
    int64_t window = s->window_rows * run->cols, band = s->band_rows * run->cols;
    const want wants[] = {
        {XPE_AT(v), j * plane * 8},
        {XPE_AT(s), blind * k * j * plane * 8},
        {XPE_AT(misfit), j * 8},
        {XPE_AT(v_energy), j * 4},
        {XPE_AT(s_energy), blind * k * j * 4},
        {XPE_AT(nonzero), blind * j * 4},
        {XPE_AT(z), window * 8},
        {XPE_AT(fix), k * band * 16},
        {XPE_AT(v_sum), k * band * 16},
        {XPE_AT(l_sum), k * band * 8},
        {XPE_AT(count), band * 4},
        {XPE_AT(band_z), band * 8},
        {XPE_AT(band_image[0]), band * 8},
        {XPE_AT(band_image[1]), band * 8},
        {XPE_AT(band_image[2]), run->lazy * band * 8},
        {XPE_AT(maxima), (int64_t)run->plan->count * 24},
        {XPE_AT(row_energy), run->rows * 8},
        {XPE_AT(row_max), s->band_rows * 16},
        {XPE_AT(cover_energy), k * run->rows * 8},
        {XPE_AT(u), blind * k * plane * 8},
        {XPE_AT(deviation), blind * k * plane * 4},
        {XPE_AT(probe_fix_r), owner * blind * k * plane * 16},
        {XPE_AT(probe_fix_s), owner * blind * k * plane * 16},
        {XPE_AT(u_max), owner * blind * k * run->n * 8},
        {XPE_AT(d_before), owner * blind * k * plane * 8},
    };
    return make_buffers(run, g, wants, sizeof wants / sizeof *wants, err);
}

static xpe_status make_sums(xpe_run *run, int g, const int32_t *first, xpe_error *err)
{
    xpe_shard *s = &run->shards[g];
    /* a known probe's L is summed once, before there is a W */
    xpe_sums_desc image = {run->modes_max, true,  !run->known, !run->known, s->window_rows,
                           run->cols,      first, s->frames,   run->n};
    xpe_sums_desc probe = {run->modes_max, true, true,      true,  run->n,
                           run->n,         NULL, s->frames, run->n};
    xpe_status st = run->backend->sums_create(&s->sums, run->team, g, &image, err);

    if (st == XPE_OK && !run->known)
        st = run->backend->sums_create(&s->probe_sums, run->team, g, &probe, err);
    return st;
}

/* First pixels relative to the window: to the device, or for the making of its sums. */
static xpe_status use_first(xpe_run *run, int g, bool sums, xpe_error *err)
{
    xpe_shard *s = &run->shards[g];
    const int32_t *all = run->problem->first;
    int32_t *first = NULL;
    xpe_status st;

    XPE_TRY(xpe_new(&first, (size_t)s->frames * 2, sizeof *first, err));
    for (int64_t i = 0; i < s->frames; i++) {
        first[2 * i] = all[2 * s->order[i]] - (int32_t)s->window_first;
        first[2 * i + 1] = all[2 * s->order[i] + 1];
    }
    if (sums) {
        st = make_sums(run, g, first, err);
        goto done;
    }
    run->backend->upload(run->team, s->first, 0, first, (size_t)s->frames * 2 * sizeof *first);
    st = xpe_state_wait(run, err);
done:
    free(first);
    return st;
}

static void place_shard(xpe_run *run, int g, int64_t before)
{
    xpe_shard *s = &run->shards[g];
    const xpe_plan_shard *p = &run->plan->shards[g];
    int64_t margin = run->stage.algorithm == XPE_REFINE_POSITIONS ? run->stage.max_shift : 0;

    s->frames = p->frames;
    s->order = run->plan->order + before;
    s->window_first = xpe_max64(0, p->window_first - margin);
    s->window_rows = xpe_min64(run->rows, p->window_stop + margin) - s->window_first;
    s->band_first = p->band_first;
    s->band_rows = p->band_stop - p->band_first;
    while (s->above < s->frames &&
           run->problem->first[2 * s->order[s->above]] < (int32_t)p->band_first)
        s->above++;
    s->below = s->frames; /* the block is sorted by first row */
    while (s->below > s->above &&
           run->problem->first[2 * s->order[s->below - 1]] + run->n > p->band_stop)
        s->below--;
}

static void send_amplitudes(xpe_run *run, int g)
{
    const xpe_scan *scan = &run->problem->desc.scan;
    const xpe_shard *s = &run->shards[g];
    xpe_amplitude_args args = {.frames = scan->frames,
                               .type = scan->type,
                               .mask = scan->mask,
                               .mask_per_frame = scan->mask_frames > 1,
                               .saturation = scan->saturation,
                               .order = s->order,
                               .y = s->y,
                               .energy = s->energy,
                               .masked = s->masked};

    while (xpe_state_next_batch(run, s, &args.batch))
        run->backend->amplitudes(run->team, g, &args);
}

/* Norms of the frames in original order, their sum, and whether anything is masked. */
static xpe_status read_amplitudes(xpe_run *run, xpe_error *err)
{
    xpe_status st;
    int64_t *masked = NULL, hidden = 0;

    XPE_TRY(xpe_new(&masked, (size_t)run->num_frames, sizeof *masked, err));
    XPE_TRY(xpe_state_get_frames(run, XPE_AT(energy), run->norms, sizeof(double), err));
    XPE_TRY(xpe_state_get_frames(run, XPE_AT(masked), masked, sizeof(int64_t), err));
    for (int64_t j = 0; j < run->num_frames; j++) {
        run->total_energy += run->norms[j];
        run->norms[j] = sqrt(run->norms[j]);
        run->frame_norm = fmax(run->frame_norm, run->norms[j]);
        hidden += masked[j];
    }
    run->masked = hidden > 0;
    if (!(run->total_energy > 0))
        st = xpe_fail(err, XPE_INVALID, "/scan/path",
                      "no frame has a count above 0: %lld of %lld pixels are masked and the rest "
                      "are 0; check the dataset and the mask",
                      (long long)hidden, (long long)(run->num_frames * run->n * run->n));
done:
    free(masked);
    return st;
}

/* What the named devices have free, or why one cannot be used; no other device is touched. */
static xpe_status look_at(int64_t *bytes_free, const xpe_device_list *devices, xpe_error *err)
{
    for (int g = 0; g < devices->count; g++) {
        xpe_device_info info;
        int h = 0;

        while (strcmp(devices->names[h], devices->names[g]) != 0)
            h++;
        if (h < g) {
            bytes_free[g] = bytes_free[h];
            continue;
        }
        xpe_devices_look(&info, &devices->names[g], 1);
        if (info.absent[0])
            return xpe_fail(err, XPE_NO_DEVICE, "/devices/devices",
                            "device '%s' cannot be used: %s", devices->names[g], info.absent);
        bytes_free[g] = info.bytes_free;
    }
    return XPE_OK;
}

/* What a shard's buffers leave of its device, in equal parts where several shards share it. */
static int64_t room_of(const xpe_run *run, const xpe_device_list *devices, int g, int64_t room)
{
    int shards = 0;

    for (int h = 0; h < devices->count; h++)
        if (strcmp(devices->names[g], devices->names[h]) == 0) {
            room -= run->plan->shards[h].bytes;
            shards++;
        }
    return xpe_max64(0, room) / shards;
}

/* Adds what the backend takes beside buffers and sums to the account of every shard. */
static xpe_status count_work(xpe_run *run, const xpe_device_list *devices,
                             const int64_t *bytes_free, xpe_error *err)
{
    xpe_work *work = NULL;
    xpe_status st;

    XPE_TRY(xpe_new(&work, (size_t)devices->count, sizeof *work, err));
    for (int g = 0; run->lazy && g < devices->count; g++) { /* a third image */
        xpe_plan_shard *s = &run->plan->shards[g];
        s->bytes += (s->band_stop - s->band_first) * run->cols * 8;
    }
    for (int g = 0; g < devices->count; g++)
        XPE_TRY(run->backend->work_bytes(
            &work[g], devices->names[g], run->n, run->modes_max, run->plan->shards[g].frames,
            run->known, devices->count == 1, room_of(run, devices, g, bytes_free[g]), err));
    for (int g = 0; g < devices->count; g++) {
        run->plan->shards[g].bytes += work[g].bytes;
        run->shards[g].chunk = work[g].frames;
    }
done:
    free(work);
    return st;
}

static xpe_status admit(xpe_run *run, const xpe_device_list *devices, xpe_error *err)
{
    int64_t *bytes_free = NULL;
    xpe_status st;

    XPE_TRY(xpe_new(&bytes_free, (size_t)devices->count, sizeof *bytes_free, err));
    XPE_TRY(look_at(bytes_free, devices, err));
    if (run->backend->work_bytes) /* plans transforms, so only on devices that are there */
        XPE_TRY(count_work(run, devices, bytes_free, err));
    XPE_TRY(xpe_plan_admit(run->plan, devices->names, bytes_free, err));
done:
    free(bytes_free);
    return st;
}

xpe_status xpe_state_create(xpe_run *run, const xpe_device_list *devices, xpe_error *err)
{
    xpe_status st;
    int64_t before = 0, longest = xpe_max64(run->num_frames, run->rows);

    XPE_TRY(xpe_backend_find(&run->backend, devices, err));
    run->lazy = run->stage.algorithm == XPE_PMACE && run->backend->order;
    XPE_TRY(xpe_plan_build(&run->plan, run->problem->first, run->num_frames, run->n,
                           &run->problem->grid, run->modes_max, run->known, devices->count, err));
    XPE_TRY(xpe_new(&run->shards, (size_t)run->plan->count, sizeof *run->shards, err));
    XPE_TRY(run->backend->open(&run->team, devices, run->n, run->modes_max, err));
    XPE_TRY(admit(run, devices, err));
    for (int g = 0; run->backend->set_chunk && g < devices->count; g++)
        run->backend->set_chunk(run->team, g, run->shards[g].chunk);
    XPE_TRY(xpe_new(&run->norms, (size_t)run->num_frames, sizeof *run->norms, err));
    XPE_TRY(xpe_new(&run->frame_values, (size_t)run->num_frames, sizeof *run->frame_values, err));
    XPE_TRY(xpe_new(&run->host_rows, (size_t)longest, sizeof *run->host_rows, err));
    for (int g = 0; g < run->plan->count; g++) {
        place_shard(run, g, before);
        before += run->shards[g].frames;
        XPE_TRY(make_common(run, g, err));
        XPE_TRY(use_first(run, g, false, err));
        send_amplitudes(run, g);
    }
    XPE_TRY(xpe_state_wait(run, err));
    XPE_TRY(read_amplitudes(run, err));
    if (run->problem->desc.frames_read) /* before the patches take their memory */
        run->problem->desc.frames_read(run->problem->desc.frames_read_arg);
    for (int g = 0; run->stage.algorithm == XPE_PMACE && g < run->plan->count; g++) {
        XPE_TRY(make_pmace(run, g, err));
        XPE_TRY(use_first(run, g, true, err));
    }
done:
    return st;
}

void xpe_state_destroy(xpe_run *run)
{
    /* every xpe_buffer pointer of a shard, in the order of the struct */
    for (int g = 0; run->shards && g < run->plan->count; g++) {
        xpe_shard *s = &run->shards[g];
        xpe_buffer *const buffers[] = {
            s->first,
            s->y,
            s->v,
            s->s,
            s->energy,
            s->masked,
            s->misfit,
            s->v_energy,
            s->s_energy,
            s->nonzero,
            s->image,
            s->z,
            s->fix,
            s->v_sum,
            s->l_sum,
            s->count,
            s->band_z,
            s->row_energy,
            s->row_max,
            s->cover_energy,
            s->band_image[0],
            s->band_image[1],
            s->band_image[2],
            s->maxima,
            s->numbers,
            s->d,
            s->probe,
            s->divider,
            s->weight,
            s->u,
            s->deviation,
            s->mode_energy,
            s->mode_max,
            s->probe_fix_r,
            s->probe_fix_s,
            s->u_max,
            s->d_before,
        };
        for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
            run->backend->buffer_destroy(buffers[i]);
        run->backend->sums_destroy(s->sums);
        run->backend->sums_destroy(s->probe_sums);
    }
    free(run->shards);
    if (run->team)
        run->backend->close(run->team);
    xpe_plan_destroy(run->plan);
    free(run->norms);
    free(run->frame_values);
    free(run->host_rows);
}

/* ------------------------------------------------------------------------ sending, reading */

xpe_status xpe_state_send_modes(xpe_run *run, const xpe_c32 *modes, xpe_error *err)
{
    for (int g = 0; g < run->plan->count; g++)
        run->backend->upload(run->team, run->shards[g].d, 0, modes,
                             (size_t)(run->modes * run->n * run->n) * sizeof *modes);
    return xpe_state_wait(run, err);
}

xpe_status xpe_state_get_modes(xpe_run *run, size_t member, xpe_c32 *modes, xpe_error *err)
{
    run->backend->download(run->team, modes, xpe_shard_buffer(&run->shards[0], member), 0,
                           (size_t)(run->modes * run->n * run->n) * sizeof *modes);
    return xpe_state_wait(run, err);
}

xpe_status xpe_state_send_image(xpe_run *run, const xpe_c32 *image, xpe_error *err)
{
    size_t row = (size_t)run->cols * sizeof *image;

    for (int g = 0; g < run->plan->count; g++) {
        const xpe_shard *s = &run->shards[g];
        if (s->band_image[run->slot])
            run->backend->upload(run->team, s->band_image[run->slot], 0,
                                 image + s->band_first * run->cols, (size_t)s->band_rows * row);
        run->backend->upload(run->team, s->image, 0, image + s->window_first * run->cols,
                             (size_t)s->window_rows * row);
    }
    return xpe_state_wait(run, err);
}

void xpe_state_ask_frames(xpe_run *run, size_t member, size_t size)
{
    char *block = (char *)run->host_rows;
    size_t before = 0;

    for (int g = 0; g < run->plan->count; g++) {
        size_t bytes = (size_t)run->shards[g].frames * size;
        run->backend->download(run->team, block + before, xpe_shard_buffer(&run->shards[g], member),
                               0, bytes);
        before += bytes;
    }
}

void xpe_state_take_frames(const xpe_run *run, void *out, size_t size)
{
    const char *block = (const char *)run->host_rows;
    char *to = out;

    for (int64_t i = 0; i < run->num_frames; i++)
        memcpy(to + (size_t)run->plan->order[i] * size, block + (size_t)i * size, size);
}

xpe_status xpe_state_get_frames(xpe_run *run, size_t member, void *out, size_t size, xpe_error *err)
{
    xpe_status st;

    xpe_state_ask_frames(run, member, size);
    XPE_TRY(xpe_state_wait(run, err));
    xpe_state_take_frames(run, out, size);
done:
    return st;
}

xpe_status xpe_state_get_rows(xpe_run *run, size_t member, size_t plane, void *out, size_t size,
                              xpe_error *err)
{
    for (int g = 0; g < run->plan->count; g++) {
        const xpe_shard *s = &run->shards[g];
        size_t bytes = (size_t)s->band_rows * size;
        run->backend->download(run->team, (char *)out + (size_t)s->band_first * size,
                               xpe_shard_buffer(s, member), plane * bytes, bytes);
    }
    return xpe_state_wait(run, err);
}
