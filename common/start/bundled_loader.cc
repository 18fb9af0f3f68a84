#include "common/start/bundled_loader.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>

#include "common/start/system.h"

namespace catchment::start {
namespace {

constexpr uint64_t kPage = 4096;
constexpr int kMaxHeaders = 64;

uint64_t PageStart(uint64_t address) { return address & ~(kPage - 1); }
uint64_t PageEnd(uint64_t address) { return PageStart(address + kPage - 1); }
bool IsError(int64_t result) { return result < 0 && result > -4096; }

// The beginning of the loader's file: its header and program headers.
union FileStart {
  Elf64_Ehdr header;
  char bytes[kPage];
};

// Appends the path of the loader, which is ../lib/ld-linux-x86-64.so.2 relative to the directory of the
// program.
void AppendLoaderPath(const char* program, Line* path) {
  char self[PATH_MAX];
  const int64_t length = SystemCall(SYS_readlink, Address("/proc/self/exe"), Address(self), sizeof self - 1);
  if (length <= 0) {
    Line message;
    message.Append("cannot read the link /proc/self/exe; is /proc mounted?");
    Fail(program, message);
  }
  self[length] = '\0';
  path->Append(self);
  path->CutAfterLastSlash();
  path->Append("../lib/ld-linux-x86-64.so.2");
}

[[noreturn]] void FailToLoad(const char* program, const Line& path) {
  Line message;
  message.Append("cannot load ");
  message.Append(path.text());
  message.Append("; unpack the whole bundle, and keep its directories bin and lib together");
  Fail(program, message);
}

bool IsLoader(const FileStart& start, int64_t size) {
  const Elf64_Ehdr& header = start.header;
  return size >= static_cast<int64_t>(sizeof header) && header.e_ident[EI_MAG0] == ELFMAG0 &&
         header.e_ident[EI_MAG1] == 'E' && header.e_ident[EI_MAG2] == 'L' && header.e_ident[EI_MAG3] == 'F' &&
         header.e_machine == EM_X86_64 && header.e_type == ET_DYN &&
         header.e_phentsize == sizeof(Elf64_Phdr) && header.e_phnum <= kMaxHeaders &&
         static_cast<int64_t>(header.e_phoff + header.e_phnum * sizeof(Elf64_Phdr)) <= size;
}

int Protection(uint32_t flags) {
  return ((flags & PF_R) != 0 ? PROT_READ : 0) | ((flags & PF_W) != 0 ? PROT_WRITE : 0) |
         ((flags & PF_X) != 0 ? PROT_EXEC : 0);
}

// Maps one segment of `file` at `base` plus its address. Memory beyond the segment's part of the file is
// zero.
bool MapSegment(int64_t file, uint64_t base, const Elf64_Phdr& segment) {
  const int protection = Protection(segment.p_flags);
  const uint64_t begin = base + segment.p_vaddr;
  const uint64_t file_end = begin + segment.p_filesz;
  const uint64_t end = begin + segment.p_memsz;
  const uint64_t page = PageStart(begin);
  if (IsError(SystemCall(SYS_mmap, page, file_end - page, protection, MAP_PRIVATE | MAP_FIXED, file,
                         segment.p_offset - (begin - page)))) {
    return false;
  }
  if (end == file_end) return true;
  for (uint64_t zero = file_end; zero < PageEnd(file_end); ++zero)
    *reinterpret_cast<volatile char*>(zero) = 0;
  if (PageEnd(end) == PageEnd(file_end)) return true;
  return !IsError(SystemCall(SYS_mmap, PageEnd(file_end), PageEnd(end) - PageEnd(file_end), protection,
                             MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0));
}

// Maps all segments of `file`. Returns the address that they are relative to, or 0 on failure.
uint64_t MapSegments(int64_t file, const Elf64_Phdr* segments, int count) {
  uint64_t size = 0;
  for (int i = 0; i < count; ++i) {
    const uint64_t end = PageEnd(segments[i].p_vaddr + segments[i].p_memsz);
    if (segments[i].p_type == PT_LOAD && end > size) size = end;
  }
  const int64_t base = SystemCall(SYS_mmap, 0, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (IsError(base)) return 0;
  for (int i = 0; i < count; ++i) {
    if (segments[i].p_type == PT_LOAD && !MapSegment(file, base, segments[i])) return 0;
  }
  return base;
}

// Gives the loader a copy of the program's headers in which the one that the bundle has cleared (PT_NULL)
// names the loader at `path`, as the loader expects it in a program that the kernel has started with it.
bool RestoreInterpreter(const Line& path, const Auxiliary& auxiliary) {
  static Elf64_Phdr headers[kMaxHeaders];
  static char interpreter[sizeof(Line)];
  for (int i = 0; i <= path.size(); ++i) interpreter[i] = path.text()[i];
  const auto* from = reinterpret_cast<const Elf64_Phdr*>(auxiliary.program_headers->a_un.a_val);
  if (auxiliary.program_header_count > kMaxHeaders) return false;
  uint64_t moved = 0;  // from the addresses in the file to those in the process
  Elf64_Phdr* restored = nullptr;
  for (uint64_t i = 0; i < auxiliary.program_header_count; ++i) {
    headers[i] = from[i];
    if (headers[i].p_type == PT_NULL) restored = &headers[i];
    if (headers[i].p_type != PT_PHDR) continue;
    moved = Address(from) - headers[i].p_vaddr;
    // The loader computes `moved` from these two as well.
    headers[i].p_vaddr = Address(headers) - moved;
  }
  if (restored == nullptr) return false;
  restored->p_type = PT_INTERP;
  restored->p_vaddr = Address(interpreter) - moved;
  restored->p_filesz = restored->p_memsz = path.size() + 1;
  auxiliary.program_headers->a_un.a_val = Address(headers);
  return true;
}

}  // namespace

uint64_t MapBundledLoader(const char* program, const Auxiliary& auxiliary) {
  Line path;
  AppendLoaderPath(program, &path);
  FileStart start;
  const int64_t file = SystemCall(SYS_open, Address(path.text()), O_RDONLY | O_CLOEXEC);
  if (IsError(file) || !IsLoader(start, SystemCall(SYS_pread64, file, Address(&start), sizeof start, 0))) {
    FailToLoad(program, path);
  }
  const auto* segments = reinterpret_cast<const Elf64_Phdr*>(start.bytes + start.header.e_phoff);
  const uint64_t base = MapSegments(file, segments, start.header.e_phnum);
  SystemCall(SYS_close, file);
  if (base == 0 || !RestoreInterpreter(path, auxiliary)) FailToLoad(program, path);
  auxiliary.base->a_un.a_val = base;
  return base + start.header.e_entry;
}

}  // namespace catchment::start
