/* Paths and errors between POSIX and Windows. */
#include "base/windows/wide.h"

/* What an error of Windows is for POSIX; EIO if nothing fits. */
int wide_fail(void)
{
    static const struct {
        DWORD code;
        int number;
    } list[] = {
        {ERROR_FILE_NOT_FOUND, ENOENT},
        {ERROR_PATH_NOT_FOUND, ENOENT},
        {ERROR_INVALID_NAME, ENOENT},
        {ERROR_BAD_PATHNAME, ENOENT},
        {ERROR_BAD_NETPATH, ENOENT},
        {ERROR_INVALID_DRIVE, ENOENT},
        {ERROR_ACCESS_DENIED, EACCES},
        {ERROR_SHARING_VIOLATION, EACCES},
        {ERROR_LOCK_VIOLATION, EACCES},
        {ERROR_USER_MAPPED_FILE, EACCES},
        {ERROR_WRITE_PROTECT, EROFS},
        {ERROR_FILE_EXISTS, EEXIST},
        {ERROR_ALREADY_EXISTS, EEXIST},
        {ERROR_DIR_NOT_EMPTY, ENOTEMPTY},
        {ERROR_DIRECTORY, ENOTDIR},
        {ERROR_DISK_FULL, ENOSPC},
        {ERROR_HANDLE_DISK_FULL, ENOSPC},
        {ERROR_NOT_ENOUGH_MEMORY, ENOMEM},
        {ERROR_COMMITMENT_LIMIT, ENOMEM},
        {ERROR_TOO_MANY_OPEN_FILES, EMFILE},
        {ERROR_FILENAME_EXCED_RANGE, ENAMETOOLONG},
        {ERROR_INVALID_HANDLE, EBADF},
        {ERROR_INVALID_PARAMETER, EINVAL},
        {ERROR_BROKEN_PIPE, EPIPE},
        {ERROR_NO_DATA, EPIPE},
        {ERROR_NOT_SUPPORTED, ENOSYS},
        {ERROR_NOACCESS, EFAULT},
    };
    DWORD code = GetLastError();
    errno = EIO;
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        if (list[i].code == code)
            errno = list[i].number;
    return -1;
}

bool wide_path(const char *path, wchar_t out[WIDE_PATH])
{
    int n = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, out, WIDE_PATH);
    if (n <= 1) { /* its end counts: an empty path is no file */
        errno = path[0] && GetLastError() == ERROR_INSUFFICIENT_BUFFER ? ENAMETOOLONG : ENOENT;
        return false;
    }
    for (wchar_t *at = out; *at; at++)
        if (*at == L'/')
            *at = L'\\';
    for (n -= 2; n > 0 && out[n] == L'\\' && out[n - 1] != L':'; n--)
        out[n] = 0;
    return true;
}

bool wide_to_path(const wchar_t *wide, char *out, size_t size)
{
    if (wcsncmp(wide, L"\\\\?\\", 4) == 0 && wcsncmp(wide, L"\\\\?\\UNC\\", 8) != 0)
        wide += 4;
    if (WideCharToMultiByte(CP_UTF8, 0, wide, -1, out, (int)size, NULL, NULL) <= 0) {
        errno = ENAMETOOLONG;
        return false;
    }
    for (char *at = out; *at; at++)
        if (*at == '\\')
            *at = '/';
    return true;
}

bool wide_path_of(int fd, wchar_t out[WIDE_PATH])
{
    DWORD n = GetFinalPathNameByHandleW((HANDLE)_get_osfhandle(fd), out, WIDE_PATH, 0);
    if (n > 0 && n < WIDE_PATH)
        return true;
    wide_fail();
    return false;
}
