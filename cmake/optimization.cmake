# Code of which no run, transfer or request spends its time is compiled with -O1: a fifth less compiling. Rows of
# tests/bench that reach it (training_graph, run_by_hash_1, infer_4b) do not tell the difference; kernels are not
# compiled by this compiler at all.
foreach(target telegrad_frontend telegrad_frontend_io telegrad_frontend_onnx telegrad_explain telegrad_tools
               telegrad_terminal telegrad_cli telegrad hello char_gpt resnet50 bert telegrad-opt
               telegrad_server_admin telegrad_server_http telegrad_server_identity telegradd
               telegrad_compile telegrad_nv)
  if(TARGET ${target})
    target_compile_options(${target} PRIVATE "$<$<CONFIG:Release>:${TELEGRAD_COLD}>")
  endif()
endforeach()

# What schedules and lowers graphs: with -O2, the rows resnet50_front and bert_front ran at 0.91 and 0.95 of their speed.
foreach(target telegrad_base telegrad_types telegrad_ir telegrad_rewrite telegrad_rules telegrad_schedule
               telegrad_lowering telegrad_reference telegrad_render telegrad_execution telegrad_cpu)
  if(TARGET ${target})
    target_compile_options(${target} PRIVATE "$<$<CONFIG:Release>:-O3>")
  endif()
endforeach()
