#include "bench/jobs/random_layouts.h"

namespace nccl_pulse {

int64_t Between(Generator* random, int64_t least, int64_t most) {
  return least + static_cast<int64_t>((*random)() % static_cast<uint64_t>(most - least + 1));
}

JobLayout MakeLayout(Generator* random) {
  JobLayout layout;
  switch (Between(random, 0, 6)) {
    case 0:
      layout.name = "data";
      layout.data = static_cast<int>(8 * Between(random, 2, 6));
      break;
    case 1:
      layout.name = "tensor x data";
      layout.tensor = 8;
      layout.data = static_cast<int>(Between(random, 3, 8));
      break;
    case 2:
      layout.name = "tensor x pipeline x data";
      layout.tensor = 4;
      layout.pipeline = 1 << Between(random, 1, 2);
      layout.data = static_cast<int>(2 * Between(random, 2, 3));
      layout.layers = 1;
      layout.microbatches = layout.pipeline;
      break;
    case 3:
      layout.name = "pipeline x data";
      layout.pipeline = 4;
      layout.data = static_cast<int>(4 * Between(random, 1, 2));
      layout.layers = 1;
      layout.microbatches = 4;
      break;
    case 4:
      layout.name = "experts x data";
      layout.data = static_cast<int>(8 * Between(random, 2, 4));
      layout.experts = Between(random, 0, 3) == 0 ? layout.data : 8;
      break;
    case 5:
      layout.name = "one rank a node";
      layout.gpus_per_node = 1;
      layout.data = static_cast<int>(Between(random, 4, 24));
      break;
    default:
      layout.name = "72 GPUs a node";
      layout.gpus_per_node = 72;
      layout.tensor = 8;
      layout.data = static_cast<int>(9 * Between(random, 2, 3));
      layout.layers = 1;
      break;
  }
  layout.has_world = Between(random, 0, 3) != 0;
  layout.slowdown = 1 << Between(random, 0, 5);
  return layout;
}

JobLayout MakeDeepLayout(Generator* random) {
  JobLayout layout;
  layout.data = static_cast<int>(8 * Between(random, 2, 4));
  layout.layers = static_cast<int>(Between(random, 8, 48));
  layout.is_sharded = Between(random, 0, 1) == 0;
  if (layout.is_sharded) {
    layout.name = "sharded data";
  } else {
    layout.name = "experts x data";
    layout.experts = 8;
  }
  layout.has_world = Between(random, 0, 3) != 0;
  return layout;
}

JobLayout MakeLayoutThatPostsAhead(Generator* random) {
  JobLayout layout;
  layout.posts_ahead = true;
  layout.syncs_often = Between(random, 0, 1) == 0;
  if (Between(random, 0, 2) == 0) {
    layout.name = "data, input by Broadcast";
    layout.data = static_cast<int>(4 * Between(random, 1, 6));
  } else {
    layout.name = "overlapped pipeline";
    layout.tensor = 1 << Between(random, 0, 2);
    layout.pipeline = 2;
    layout.data = static_cast<int>(2 * Between(random, 1, 4));
    layout.layers = 1;
    layout.microbatches = static_cast<int>(Between(random, 2, 6));
  }
  layout.has_world = Between(random, 0, 3) != 0;
  layout.slowdown = 1 << Between(random, 0, 5);
  return layout;
}

JobLayout MakePipeline(Generator* random) {
  JobLayout layout;
  layout.name = "pipeline, large messages";
  layout.sends_wait = true;
  layout.tensor = 1 << Between(random, 0, 1);
  layout.pipeline = 4;
  layout.data = static_cast<int>(2 * Between(random, 1, 3));
  layout.layers = 1;
  layout.microbatches = static_cast<int>(Between(random, 2, 6));
  layout.has_world = Between(random, 0, 3) != 0;
  layout.slowdown = 1 << Between(random, 0, 5);
  return layout;
}

JobLayout MakeExperts(Generator* random) {
  JobLayout layout;
  layout.name = "experts x data";
  layout.data = static_cast<int>(8 * Between(random, 2, 4));
  layout.experts = Between(random, 0, 3) == 0 ? layout.data : 8;
  layout.has_world = Between(random, 0, 3) != 0;
  layout.slowdown = 1 << Between(random, 0, 5);
  return layout;
}

JobLayout MakeNodeLayout(Generator* random) {
  JobLayout layout;
  layout.name = "tensor x data in a node";
  layout.tensor = 1 << Between(random, 1, 2);
  layout.data = static_cast<int>(Between(random, 1, 4)) * layout.gpus_per_node / layout.tensor;
  layout.has_world = Between(random, 0, 3) != 0;
  return layout;
}

}  // namespace nccl_pulse
