# The files of the CUDA backend, once for both ways of building it.
set(xptychod_cuda_c backend.c buffer.c comm.c device.c fft.c ops_fit.c ops_image.c ops_numbers.c ops_probe.c)
set(xptychod_cuda_kernels k_chain.cu k_fit.cu k_frames.cu k_image.cu k_numbers.cu k_probe.cu)
