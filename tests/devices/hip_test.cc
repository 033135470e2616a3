// What is particular to HIP, on the fake library: which GPUs are offered, the messages about
// libraries and GPUs that cannot be used, code objects, and that launches, graphs, peers and
// faults reach the library. What the driver shares with CUDA's is tested in cuda_test.cc.
#include <elf.h>

#include <cstring>
#include <thread>

#include "devices/hip/code_object.h"
#include "tests/devices/hip_fixture.h"

namespace telegrad {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class Hip : public ::testing::Test {
 protected:
  void Open(const HipOptions& options = FakeHipOptions()) {
    devices_ = OpenHips(options, &notes_);
    for (const auto& device : devices_) names_.push_back(device->name());
  }
  Device& device(size_t i = 0) { return *devices_[i]; }
  BufferView Buffer(int64_t bytes, size_t i = 0) { return Whole(*device(i).Alloc(bytes)); }
  std::shared_ptr<LoadedProgram> Next(size_t i = 0) {
    auto program = device(i).Load(image_);
    EXPECT_TRUE(program.ok()) << program.status();
    return program.ok() ? *program : nullptr;
  }
  std::string Read(const BufferView& view, size_t i = 0) {
    const BufferView out = HostBuffer(*host_, std::string(view.length, '?'));
    const auto copied = Copy(device(i), out, view);
    EXPECT_TRUE(copied.ok()) << copied.status();
    if (copied.ok()) {
      EXPECT_EQ(copied->Wait(), absl::OkStatus());
    }
    return Bytes(out);
  }
  void Fill(const BufferView& view, const std::string& bytes, size_t i = 0) {
    EXPECT_EQ(Copy(device(i), view, HostBuffer(*host_, bytes))->Wait(), absl::OkStatus());
  }
  absl::Status Run(const std::vector<Command>& commands, std::vector<BufferView> bindings) {
    TG_ASSIGN_OR_RETURN(const auto encoded, device().Encode(commands));
    TG_ASSIGN_OR_RETURN(const TimelinePoint point,
                        device().queue().Submit(encoded, std::move(bindings), {}));
    return point.Wait();
  }

  FakeHip fake_;
  const ProgramImage image_ = *NextHip();
  std::unique_ptr<Device> host_ = OpenHost({.index = 7});
  std::vector<std::string> notes_, names_;
  std::vector<std::unique_ptr<Device>> devices_;
};

TEST_F(Hip, OpensEveryGpu) {
  fake_.Set("multiprocessors", 8);
  Open();
  EXPECT_THAT(names_, ElementsAre("HIP:0", "HIP:1"));
  EXPECT_THAT(notes_, SizeIs(0));
  EXPECT_EQ(device().target(), AmdTarget(*FindAmdProcessor("gfx942"), 8));
  EXPECT_EQ(device().target().warp, 64);
  EXPECT_GT(device().rates().bytes, 0);
  EXPECT_GT(device().rates().launch_flops(), 0);
  EXPECT_EQ(device().rates().flops[Arithmetic::kMatrixF16], 0) << "not known";
  EXPECT_THAT(device().queues(), SizeIs(3));
  fake_.Set("copy_engines", 1);
  Open();
  EXPECT_THAT(device().queues(), SizeIs(2));
  fake_.Set("copy_engines", 2);
  EXPECT_GT(device().memory_limit(), 0);
  EXPECT_LT(device().memory_limit(), 64 << 20);  // there is a reserve
  devices_.clear();
  fake_.Set("processor", 0x1100);
  Open();
  EXPECT_EQ(device().target().arch, "gfx1100");
  EXPECT_EQ(device().target().warp, 32);
}

TEST_F(Hip, OpensAsManyAsItIsTold) {
  HipOptions options = FakeHipOptions();
  options.devices = 1;
  options.memory_limit = 1 << 20;
  Open(options);
  EXPECT_THAT(names_, ElementsAre("HIP:0"));
  EXPECT_EQ(device().memory_limit(), 1 << 20);
  devices_.clear();
  names_.clear();
  options.devices = 0;
  Open(options);
  EXPECT_THAT(names_, SizeIs(0));
  EXPECT_THAT(notes_, SizeIs(0));
}

// What cannot be used is said, and nothing fails.

TEST_F(Hip, NoLibrary) {
  Open({.library = "/no/such/libamdhip64.so.7:/no/such/libamdhip64.so.6"});
  EXPECT_THAT(names_, SizeIs(0));
  EXPECT_THAT(notes_,
              ElementsAre(AllOf(HasSubstr("no AMD driver"), HasSubstr("/no/such/libamdhip64.so.7"),
                                HasSubstr("/no/such/libamdhip64.so.6"))));
}

TEST_F(Hip, TheFirstLibraryThatThereIs) {
  Open({.library = "/no/such/libamdhip64.so.7:" TELEGRAD_FAKE_HIP, .devices = 1});
  EXPECT_THAT(names_, ElementsAre("HIP:0"));
  EXPECT_THAT(notes_, SizeIs(0));
}

TEST_F(Hip, NoGpu) {
  fake_.Set("devices", 0);
  Open();
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("no AMD GPU")));
}

TEST_F(Hip, AnOldLibrary) {
  fake_.Set("driver_version", 50'731'921);
  Open();
  EXPECT_THAT(names_, SizeIs(0));
  EXPECT_THAT(notes_, ElementsAre(AllOf(HasSubstr("too old"), HasSubstr("is HIP 5.7"),
                                        HasSubstr("expected 6.0 or later"))));
}

TEST_F(Hip, ALibraryThatLacksASymbol) {
  Open({.library = TELEGRAD_FAKE_HIP_OLD});
  EXPECT_THAT(notes_, ElementsAre(AllOf(HasSubstr("lacks hipGraphAddMemcpyNode1D"),
                                        HasSubstr("expected 6.0 or later"))));
}

TEST_F(Hip, SomethingElse) {
  Open({.library = "libm.so.6"});
  EXPECT_THAT(notes_, ElementsAre(HasSubstr("libm.so.6 is not a HIP library")));
}

TEST_F(Hip, ALibraryThatDoesNotWork) {
  fake_.Set("init_error", 35);
  Open();
  EXPECT_THAT(notes_, ElementsAre(AllOf(HasSubstr("does not work"),
                                        HasSubstr("hipErrorInsufficientDriver"))));
}

TEST_F(Hip, ABusyGpuIsLeftOutAndTheOtherGoesOn) {
  fake_.Set("busy_device", 0);
  Open();
  EXPECT_THAT(names_, ElementsAre("HIP:1"));
  EXPECT_THAT(notes_, ElementsAre(AllOf(HasSubstr("HIP:0 (Fake GPU gfx942) is left out"),
                                        HasSubstr("hipSetDevice: hipErrorInvalidDevice"))));
  const BufferView buffer = Buffer(3);
  Fill(buffer, "abc");
  EXPECT_EQ(Read(buffer), "abc");
}

TEST_F(Hip, AProcessorThatCodeIsNotMadeFor) {
  fake_.Set("processor", 0x906);
  Open();
  EXPECT_THAT(names_, SizeIs(0));
  ASSERT_THAT(notes_, SizeIs(2));
  EXPECT_THAT(notes_[1], AllOf(HasSubstr("HIP:1 ("), HasSubstr("its processor is gfx906"),
                               HasSubstr("expected one of gfx90a, gfx942, gfx1100, gfx1201")));
}

TEST_F(Hip, LeavesNothingBehind) {
  for (const int is_virtual : {0, 1}) {
    fake_.Set("virtual_memory", is_virtual);
    {
      Open();
      const BufferView buffer = Buffer(2);
      const auto program = Next();
      EXPECT_EQ(Run({NextHipCommand(program), NextHipCommand(program, 0, 1)}, {buffer}),
                absl::OkStatus());
      EXPECT_EQ(Read(buffer), "\1\1");
      devices_.clear();
      EXPECT_EQ(buffer.memory->size(), 2);  // which outlives its device
    }
    for (const char* counter :
         {"live_allocations", "live_host_allocations", "live_streams", "live_events",
          "live_modules", "live_graphs", "live_mappings", "live_reservations"}) {
      EXPECT_EQ(fake_.Count(counter), 0) << counter;
    }
    EXPECT_EQ(fake_.Problems(), "");
  }
}

// Launches.

TEST_F(Hip, SlicesAKernelByItsWorkgroups) {
  for (const int64_t processor : {0x942, 0x1100}) {
    fake_.Set("processor", processor);
    Open();
    const BufferView buffer = Buffer(8);
    Fill(buffer, "aaaaaaaa");
    const auto image = NextHip(device().target().arch);
    ASSERT_TRUE(image.ok()) << image.status();
    const auto program = device().Load(*image);
    ASSERT_TRUE(program.ok()) << program.status() << fake_.Problems();
    Command part = NextHipCommand(*program);
    part.launch.begin = 2;
    part.launch.grid.x = 3;
    Command nothing = part;
    nothing.launch.grid.x = 0;
    EXPECT_EQ(Run({part, nothing}, {buffer}), absl::OkStatus());
    EXPECT_EQ(Read(buffer), "aabbbaaa");
    devices_.clear();
  }
}

TEST_F(Hip, AReplayIsOneGraphLaunchAndTellsOnlyWhatHasChanged) {
  Open();
  const auto program = Next();
  // Two launches and a copy of buffer 0, one launch of buffer 1.
  const auto commands =
      *device().Encode({NextHipCommand(program, 0, 0), NextHipCommand(program, 0, 1),
                        CopyCommand({{0, 2}, {0, 0}, 1}), NextHipCommand(program, 1, 0)});
  const BufferView a = Buffer(4), b = Buffer(4), c = Buffer(4);
  const auto run = [&](const BufferView& first, const BufferView& second) {
    const auto point = device().queue().Submit(commands, {first, second}, {});
    EXPECT_EQ(point->Wait(), absl::OkStatus());
  };
  run(a, b);
  run(a, b);
  EXPECT_EQ(fake_.Count("graph_launches"), 2);
  EXPECT_EQ(fake_.Count("node_updates"), 0);
  run(a, c);  // of four nodes, one has another address
  EXPECT_EQ(fake_.Count("node_updates"), 1);
  run(c, a);
  EXPECT_EQ(fake_.Count("node_updates"), 5);
  EXPECT_EQ(fake_.Count("graph_launches"), 4);
  EXPECT_EQ(Read(a), std::string("\4\3\3\0", 4));
  EXPECT_EQ(Read(b), std::string("\2\0\0\0", 4));
  EXPECT_EQ(Read(c), std::string("\2\1\2\0", 4));
}

TEST_F(Hip, CopiesGoFromGpuToGpu) {
  for (const int64_t access : {1, 0}) {
    fake_.Set("peer_access", access);
    Open();
    EXPECT_EQ(device(1).AccessTo(device()),
              PeerAccess{access == 1 ? PeerPath::kDirect : PeerPath::kThroughHost});
    const BufferView a = Buffer(8, 0), b = Buffer(8, 1);
    Fill(a, "01234567", 0);
    const auto copied = Copy(device(1), b, a);
    ASSERT_TRUE(copied.ok()) << copied.status();
    EXPECT_EQ(copied->Wait(), absl::OkStatus());
    EXPECT_EQ(Read(b, 1), "01234567");
    devices_.clear();
  }
}

TEST_F(Hip, APathThatChangesBytesIsNotUsed) {
  fake_.Set("corrupt_peer", 1);
  Open();
  EXPECT_EQ(device(1).AccessTo(device()), PeerAccess{PeerPath::kThroughHost});
  EXPECT_THAT(notes_, ElementsAre(AllOf(HasSubstr("copies between HIP:0 and HIP:1 go through"),
                                        HasSubstr("arrived changed"))));
  const BufferView a = Buffer(8, 0), b = Buffer(8, 1);
  Fill(a, "01234567", 0);
  EXPECT_EQ(Copy(device(1), b, a)->Wait(), absl::OkStatus());
  EXPECT_EQ(Read(b, 1), "01234567");
}

// Locked once, copied by the GPU itself, and unlocked with the device.
TEST_F(Hip, LendsPinnedMemory) {
  Open();
  constexpr int64_t kBytes = 5 << 20;  // more than a chunk of a queue's
  const BufferView buffer = Buffer(kBytes);
  const int64_t before = fake_.Count("given_copies"),
                allocated = fake_.Count("live_host_allocations");
  for (int round = 0; round < 3; ++round) {
    const auto lent = device().LendPinned(kBytes);
    ASSERT_NE(lent, nullptr);
    std::memset(lent->host(), 'a' + round, kBytes);
    EXPECT_EQ(Copy(device(), buffer, {lent, 0, kBytes})->Wait(), absl::OkStatus());
  }
  EXPECT_EQ(fake_.Count("given_copies"), before + 3);
  EXPECT_EQ(fake_.Count("host_registrations"), 1);
  EXPECT_EQ(fake_.Count("live_host_allocations"), allocated + 1);
  EXPECT_EQ(Read({buffer.memory, kBytes - 4, 4}), "cccc");
  devices_.clear();
  EXPECT_EQ(fake_.Count("host_unregistrations"), 1);
}

TEST_F(Hip, StacksOfThreadsCount) {
  fake_.Set("multiprocessors", 2);
  Open();
  EXPECT_EQ(device().memory_used(), 0);
  const auto image = NextHip("gfx942", 1024);
  ASSERT_TRUE(image.ok()) << image.status();
  const auto facts = hip::ReadKernel(image->binary, "next");
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_GE(facts->stack_bytes, 1024u);
  const auto program = device().Load(*image);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(device().memory_used(),
            facts->stack_bytes * 2 * 2048 + (facts->loaded_bytes + 255) / 256 * 256);
  EXPECT_EQ(fake_.Count("private_bytes"), facts->stack_bytes);
  EXPECT_EQ(fake_.Count("vgpr_spills"), 0) << "the stack is the program's own";
}

// Each kernel is a module, whose memory counts until it has been unloaded.
TEST_F(Hip, CodeCounts) {
  Open();
  const auto facts = hip::ReadKernel(image_.binary, "next");
  ASSERT_TRUE(facts.ok()) << facts.status();
  const int64_t code = (facts->loaded_bytes + 255) / 256 * 256;
  auto first = device().Load(image_);
  const auto second = device().Load(image_);
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  EXPECT_EQ(device().memory_used(), 2 * code);
  EXPECT_EQ(device().memory_footprint(), 2 * code);
  first = nullptr;
  while (device().memory_used() > code) std::this_thread::yield();
  EXPECT_EQ(device().memory_footprint(), code);
  EXPECT_EQ(fake_.Count("live_modules"), 1);
}

// Code objects.

TEST_F(Hip, ReadsWhatAKernelTakes) {
  const auto facts = hip::ReadKernel(image_.binary, "next");
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->argument_bytes, 16u);
  EXPECT_EQ(facts->local_bytes, 0u);
  EXPECT_EQ(facts->stack_bytes, 0u);
  // Up to where the code ends, behind the headers and the descriptor.
  EXPECT_GT(facts->loaded_bytes, 64 + 64);
  Elf64_Ehdr header;
  std::memcpy(&header, image_.binary.data(), sizeof(header));
  int64_t end = 0;
  for (size_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part;
    std::memcpy(&part, image_.binary.data() + header.e_phoff + i * sizeof(part), sizeof(part));
    if (part.p_type == PT_LOAD) end = static_cast<int64_t>(part.p_vaddr + part.p_memsz);
  }
  EXPECT_EQ(facts->loaded_bytes, end);
  for (const char* name : {"nex", "next.kd", "", "other"}) {
    EXPECT_EQ(hip::ReadKernel(image_.binary, name).status().code(),
              absl::StatusCode::kInvalidArgument)
        << name;
  }
}

// Whatever is cut off or overwritten: a Status, and no access outside of the bytes (which the
// sanitizers see).
TEST_F(Hip, MalformedCodeObjectsAreStatuses) {
  for (size_t size = 0; size < image_.binary.size(); size += 7) {
    const std::string part(image_.binary.substr(0, size));
    EXPECT_EQ(hip::ReadKernel(part, "next").status().code(), absl::StatusCode::kInvalidArgument)
        << size;
  }
  int refused = 0;
  for (size_t at = 0; at < image_.binary.size(); ++at) {
    for (const char value : {'\0', '\x7f', '\xff'}) {
      std::string bytes(image_.binary);
      bytes[at] = value;
      refused += hip::ReadKernel(bytes, "next").ok() ? 0 : 1;
    }
  }
  EXPECT_GT(refused, 50);
}

TEST_F(Hip, SaysWhatIsWrongWithAProgram) {
  Open();
  const auto load = [&](const ProgramImage& image) { return device().Load(image).status(); };
  ProgramImage image = image_;
  image.binary = "nonsense";
  const absl::Status broken = load(image);
  EXPECT_EQ(broken.code(), absl::StatusCode::kInvalidArgument) << broken;
  EXPECT_THAT(std::string(broken.message()),
              AllOf(HasSubstr("HIP:0"), HasSubstr("program next"),
                    HasSubstr("hipErrorInvalidImage"), HasSubstr("it is not an ELF file")));
  image = *NextHip("gfx1100");
  EXPECT_THAT(std::string(load(image).message()), HasSubstr("hipErrorNoBinaryForGpu"));
  image = image_;
  image.name = "nex";
  EXPECT_THAT(std::string(load(image).message()), HasSubstr("has no kernel nex"));
  image = image_;
  image.signature.group.x = 2000;
  EXPECT_THAT(std::string(load(image).message()), HasSubstr("2000 x 1 x 1 threads in a workgroup"));
  image = image_;
  image.signature.local_bytes = 1 << 20;
  EXPECT_THAT(std::string(load(image).message()), HasSubstr("1048576 bytes of local memory"));
  image.signature.local_bytes = 60 << 10;
  EXPECT_EQ(load(image), absl::OkStatus());
  EXPECT_EQ(device().Health(), absl::OkStatus());
}

// The threads of a grid are counted in 32 bits.
TEST_F(Hip, RefusesGridsOfTooManyThreads) {
  Open();
  Command command = NextHipCommand(Next());
  command.launch.grid.x = int64_t{1} << 31;
  const absl::Status status = device().Encode({command}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("2147483648 workgroups"), HasSubstr("at most 2147483647")));
}

TEST_F(Hip, AFaultFailsTheDeviceAndNothingElse) {
  Open();
  const BufferView buffer = Buffer(2), other = Buffer(2, 1);
  const auto program = Next();
  fake_.Set("fault_launch", 1);
  const absl::Status failed = Run({NextHipCommand(program)}, {buffer});
  EXPECT_EQ(failed.code(), absl::StatusCode::kUnavailable) << failed;
  EXPECT_THAT(std::string(failed.message()),
              AllOf(HasSubstr("HIP:0 (generation 1) failed"), HasSubstr("hipErrorIllegalAddress")));
  EXPECT_EQ(device().Health(), failed);
  EXPECT_EQ(device().Alloc(1).status(), failed);
  Fill(other, "ab", 1);
  EXPECT_EQ(Read(other, 1), "ab");
}

// The interpreter finds it: a store beyond the buffer's memory.
TEST_F(Hip, AKernelThatLeavesItsMemoryFaults) {
  Open();
  Command command = NextHipCommand(Next());
  command.launch.begin = int64_t{1} << 20;
  const absl::Status failed = Run({command}, {Buffer(2)});
  EXPECT_THAT(std::string(failed.message()), HasSubstr("hipErrorIllegalAddress"));
  EXPECT_THAT(fake_.Problems(), HasSubstr("next"));
}

}  // namespace
}  // namespace telegrad
