/* A SPANK plugin for Slurm: srun, sbatch and salloc take --nccl-pulse=on|off.
 *
 *   cc -shared -fPIC -O2 -o nccl_pulse_spank.so nccl_pulse_spank.c
 *
 * In plugstack.conf, with the default and the library:
 *
 *   optional /usr/lib64/slurm/nccl_pulse_spank.so on /opt/nccl-pulse/lib/libnccl-profiler-pulse.so
 *
 * A task with another NCCL_PROFILER_PLUGIN in its environment keeps it. Slurm loads only plugins that were built with its
 * own headers (slurm-devel, libslurm-dev), so no package has it built. */
#include <slurm/spank.h>
#include <string.h>

SPANK_PLUGIN(nccl_pulse, 1)

static const char kVariable[] = "NCCL_PROFILER_PLUGIN";

static int is_on;
static const char *library; /* Slurm keeps the arguments while the plugin is loaded. */

static int Choose(int value, const char *word, int is_remote) {
  (void)value;
  (void)is_remote;
  is_on = strcmp(word, "on") == 0;
  if (is_on || strcmp(word, "off") == 0) return 0;
  slurm_error("--nccl-pulse takes on or off, not %s", word);
  return -1;
}

static struct spank_option option = {
    "nccl-pulse", "on|off", "Load NCCL Pulse into the job's processes.", 1, 0, Choose};

int slurm_spank_init(spank_t spank, int argc, char **argv) {
  if (argc != 2 || Choose(0, argv[0], 0) != 0) {
    slurm_error("nccl_pulse_spank.so takes two arguments: on or off, and the path of the library");
    return -1;
  }
  library = argv[1];
  return spank_option_register(spank, &option) == ESPANK_SUCCESS ? 0 : -1;
}

int slurm_spank_task_init(spank_t spank, int argc, char **argv) {
  char now[4096];
  (void)argc;
  (void)argv;
  if (is_on) {
    spank_setenv(spank, kVariable, library, 0);
  } else if (spank_getenv(spank, kVariable, now, sizeof(now)) == ESPANK_SUCCESS &&
             strcmp(now, library) == 0) {
    spank_unsetenv(spank, kVariable); /* The batch script's, for a step that is switched off. */
  }
  return 0;
}
