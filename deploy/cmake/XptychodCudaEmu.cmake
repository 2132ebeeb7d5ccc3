# xpe_cuda_emu: the sources of engine/cuda, kernels included, as C against the emulation of engine/emu.  Included from
# a folder other than engine/cuda, because there the kernels are CUDA.
include(${PROJECT_SOURCE_DIR}/engine/cuda/sources.cmake)
list(TRANSFORM xptychod_cuda_c PREPEND ${PROJECT_SOURCE_DIR}/engine/cuda/)
list(TRANSFORM xptychod_cuda_kernels PREPEND ${PROJECT_SOURCE_DIR}/engine/cuda/)
set_source_files_properties(${xptychod_cuda_kernels} PROPERTIES LANGUAGE C COMPILE_OPTIONS "-x;c")

add_library(xpe_cuda_emu STATIC ${xptychod_cuda_c} ${xptychod_cuda_kernels}
            ${PROJECT_SOURCE_DIR}/engine/backend/registry.c)
target_include_directories(xpe_cuda_emu BEFORE PRIVATE ${PROJECT_SOURCE_DIR}/engine/emu/include)
target_include_directories(xpe_cuda_emu PRIVATE ${PROJECT_SOURCE_DIR}/engine)
target_compile_definitions(xpe_cuda_emu PRIVATE XPE_WITH_CUDA XPE_WITH_NCCL)
target_compile_options(xpe_cuda_emu PRIVATE ${xptychod_exact})
target_link_libraries(xpe_cuda_emu PUBLIC xpe_headers xpe_core PRIVATE xptychod_flags xpe_emu Threads::Threads m)
